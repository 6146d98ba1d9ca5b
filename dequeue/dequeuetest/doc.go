// Package dequeuetest is for tests of the transmit side: a Driver whose room,
// refusals, doorbell and completions are under the test's command, a small
// strict-priority Queue to feed it, and a Rig that wires them to runners and
// tells in one line what each device saw.
package dequeuetest
