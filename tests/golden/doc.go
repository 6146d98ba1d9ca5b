// Package golden replays what a real kernel did: recorded traces of known frames
// under known tc commands, in testdata, against this engine. testdata/README.md
// says how they were made and how to read them.
//
// TRACES=DIR replays another folder of such traces.
package golden
