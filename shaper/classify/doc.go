// Package classify reads a packet's headers once and says where it belongs.
//
// Three steps, each used alone: [Parse] fills the header fields of a
// qdisc.Packet, [FlowHash] computes the flow hash for whoever needs one, and
// [Rules], an ordered list of matches, is the qdisc.Classifier that disciplines
// ask for a class. Matches are written in a small language, see [ParseMatch].
//
// A frame that is cut off or lies about itself is never an error. What was read
// before the fault stays, the Malformed flag is set, no rule applies to it and
// its priority is 0, so it leaves in the default class.
package classify
