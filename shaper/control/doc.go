// Package control is the control API: HTTP and JSON over a unix socket, the
// server in front of a shaper.Engine and the client that the sluice command
// uses.
//
//	GET  /v1/status              Status
//	GET  /v1/qdiscs?dev=D        []tree.QdiscInfo
//	GET  /v1/classes?dev=D       []tree.ClassInfo
//	POST /v1/qdisc?dev=D         tree.Request
//	POST /v1/class?dev=D         tree.Request
//	POST /v1/apply               Apply → shaper.Report
//
// A refusal is a status of 4xx, a failure one of 5xx, and either brings a Refusal.
// Who may connect to the socket may do all of this.
package control
