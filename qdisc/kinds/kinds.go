// Package kinds is the one table that names every discipline. Who adds one adds
// a line to it; the command's grammar, the configuration file's keys, help and
// completion follow from the kind's own table.
package kinds

import (
	"sluice/qdisc"
	"sluice/qdisc/blackhole"
	"sluice/qdisc/cake"
	"sluice/qdisc/choke"
	"sluice/qdisc/codel"
	"sluice/qdisc/drr"
	"sluice/qdisc/ets"
	"sluice/qdisc/fifo"
	"sluice/qdisc/fq"
	"sluice/qdisc/fqcodel"
	"sluice/qdisc/fqpie"
	"sluice/qdisc/hfsc"
	"sluice/qdisc/htb"
	"sluice/qdisc/multiq"
	"sluice/qdisc/netem"
	"sluice/qdisc/noqueue"
	"sluice/qdisc/pfifofast"
	"sluice/qdisc/pie"
	"sluice/qdisc/plug"
	"sluice/qdisc/prio"
	"sluice/qdisc/qfq"
	"sluice/qdisc/red"
	"sluice/qdisc/sfq"
	"sluice/qdisc/skbprio"
	"sluice/qdisc/tbf"
)

// all is in the order of their names.
var all = []*qdisc.Kind{
	&fifo.Bfifo,
	&blackhole.Kind,
	&cake.Kind,
	&choke.Kind,
	&codel.Kind,
	&drr.Kind,
	&ets.Kind,
	&fq.Kind,
	&fqcodel.Kind,
	&fqpie.Kind,
	&hfsc.Kind,
	&htb.Kind,
	&multiq.Kind,
	&netem.Kind,
	&noqueue.Kind,
	&fifo.Pfifo,
	&pfifofast.Kind,
	&fifo.HeadDrop,
	&pie.Kind,
	&plug.Kind,
	&prio.Kind,
	&qfq.Kind,
	&red.Kind,
	&sfq.Kind,
	&skbprio.Kind,
	&tbf.Kind,
}

// All returns every kind, ordered by name. The slice is the table itself: look,
// don't write.
func All() []*qdisc.Kind { return all }

// ByName returns the kind that tc calls name, or nil.
func ByName(name string) *qdisc.Kind {
	for _, k := range all {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// Env returns what a constructor has to know on an Ethernet port with this
// tx_queue_len and MTU, for a qdisc with this handle.
func Env(txqlen, mtu int, handle uint32) qdisc.Env {
	return qdisc.Env{
		Handle:     handle,
		TxQueueLen: txqlen,
		MTU:        mtu,
		HeaderLen:  14,
		Pfifo:      fifo.NewPfifo,
		Bfifo:      fifo.NewBfifo,
	}
}
