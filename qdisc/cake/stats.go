// Admin path.

package cake

import (
	"fmt"
	"time"

	"sluice/qdisc"
)

// XStats shows what was measured, and a table of the tins.
func (q *cake) XStats() qdisc.Values {
	s := &q.sizes
	v := qdisc.Values{}.
		Set("memory_used", uint64(q.memoryMax)).
		Set("memory_limit", uint64(q.memoryLimit)).
		Set("capacity_estimate", q.capacity).
		Set("min_network_size", uint64(min(s.minNet, 0xffff))).
		Set("max_network_size", uint64(s.maxNet)).
		Set("min_adj_size", uint64(min(s.minAdj, 0xffff))).
		Set("max_adj_size", uint64(s.maxAdj)).
		Set("avg_hdr_offset", (s.offset+1<<15)>>16)
	m := &modes[q.params.mode]
	rows := make([]qdisc.Values, q.n)
	for i, n := range m.order {
		name := fmt.Sprintf("Tin %d", i)
		if m.names != nil {
			name = m.names[i]
		}
		rows[i] = q.tins[n].values(name)
	}
	v["tins"] = qdisc.Value{Rows: rows}
	return v
}

func (t *tin) values(name string) qdisc.Values {
	us := func(ns uint64) uint64 { return ns / uint64(time.Microsecond) * uint64(time.Microsecond) }
	v := qdisc.Values{"tin": {Word: name}}
	for key, n := range map[string]uint64{
		"threshold_rate": t.threshold,
		"sent_bytes":     t.bytes, "backlog_bytes": uint64(t.backlog), "sent_packets": t.packets,
		"target_us": us(uint64(t.law.target)), "interval_us": us(uint64(t.law.interval)),
		"peak_delay_us": us(t.peakDelay), "avg_delay_us": us(t.avgDelay), "base_delay_us": us(t.base),
		"way_indirect_hits": t.hits, "way_misses": t.misses, "way_collisions": t.collisions,
		"drops": t.drops, "ecn_mark": t.marks, "ack_drops": t.ackDrops,
		"sparse_flows": uint64(t.sparse + t.decaying), "bulk_flows": uint64(t.bulk),
		"unresponsive_flows": uint64(t.unresponsive),
		"max_pkt_len":        uint64(t.maxLen), "flow_quantum": uint64(t.flowQuantum),
	} {
		v.Set(key, n)
	}
	return v
}

// Walk shows the flows that are active as classes, numbered through the tins in the
// order in which those are shown.
func (q *cake) Walk(f func(qdisc.Class) bool) {
	for n, tin := range modes[q.params.mode].order {
		t := &q.tins[tin]
		if t.table == nil {
			continue
		}
		for i := range t.flows {
			if t.flows[i].state != idle && !f(q.class(n, i, &t.flows[i])) {
				return
			}
		}
	}
}

func (q *cake) class(tin, i int, f *flow) qdisc.Class {
	c := &f.cobalt
	x := qdisc.Values{}.
		Set("deficit", uint64(int64(f.deficit))).
		Set("count", uint64(c.count)).
		Set("blue_prob", uint64(c.blue))
	if c.dropping {
		next := c.dropNext - q.seen
		x.Set("dropping", 1).Set("drop_next", uint64(next))
		if next >= 0 {
			x["drop_next/json"] = x["drop_next"]
		}
	}
	if c.blue > 0 {
		x.Set("blue_timer", uint64(c.blueAt-q.seen))
	}
	return qdisc.Class{
		ID:     qdisc.MakeID(q.handle, uint32(tin*queues+i+1)),
		Parent: qdisc.MakeID(q.handle, 0),
		Stats:  qdisc.Stats{Drops: uint64(f.drops)},
		Len:    f.queue.Len(),
		Bytes:  f.queue.Bytes(),
		XStats: x,
	}
}

var classStatistics = []qdisc.Param{
	{Name: "deficit", Unit: qdisc.Signed, Text: "  deficit %s"},
	{Name: "count", Unit: qdisc.Number, Text: " count %s"},
	{Name: "dropping", Unit: qdisc.Flag, Text: " dropping"},
	{Name: "drop_next", Unit: qdisc.Time, Show: qdisc.TextOnly, Text: " drop_next %s"},
	{Name: "drop_next/json", JSON: "drop_next", Unit: qdisc.Time, Show: qdisc.JSONOnly},
	{Name: "blue_prob", Unit: qdisc.Number, Text: " blue_prob %s"},
	{Name: "blue_timer", Unit: qdisc.Time, Show: qdisc.TextOnly, Text: " blue_timer %s"},
}

// columns are what is shown of a tin: in JSON's order first, then in the text's.
var columns = func() []qdisc.Param {
	units := map[string]qdisc.Unit{
		"threshold_rate": qdisc.Rate, "backlog_bytes": qdisc.Size,
		"target_us": qdisc.Time, "interval_us": qdisc.Time,
		"peak_delay_us": qdisc.Time, "avg_delay_us": qdisc.Time, "base_delay_us": qdisc.Time,
	}
	unit := func(name string) qdisc.Unit {
		if u, ok := units[name]; ok {
			return u
		}
		return qdisc.Number
	}
	var all []qdisc.Param
	for _, name := range []string{
		"threshold_rate", "sent_bytes", "backlog_bytes", "target_us", "interval_us",
		"peak_delay_us", "avg_delay_us", "base_delay_us", "sent_packets",
		"way_indirect_hits", "way_misses", "way_collisions", "drops", "ecn_mark", "ack_drops",
		"sparse_flows", "bulk_flows", "unresponsive_flows", "max_pkt_len", "flow_quantum",
	} {
		all = append(all, qdisc.Param{Name: name, Unit: unit(name), Show: qdisc.JSONOnly})
	}
	all = append(all, qdisc.Param{Name: "tin", Unit: qdisc.Word, Show: qdisc.TextOnly})
	for _, row := range [][2]string{
		{"thresh", "threshold_rate"}, {"target", "target_us"}, {"interval", "interval_us"},
		{"pk_delay", "peak_delay_us"}, {"av_delay", "avg_delay_us"}, {"sp_delay", "base_delay_us"},
		{"backlog", "backlog_bytes"}, {"pkts", "sent_packets"}, {"bytes", "sent_bytes"},
		{"way_inds", "way_indirect_hits"}, {"way_miss", "way_misses"}, {"way_cols", "way_collisions"},
		{"drops", "drops"}, {"marks", "ecn_mark"}, {"ack_drop", "ack_drops"},
		{"sp_flows", "sparse_flows"}, {"bk_flows", "bulk_flows"}, {"un_flows", "unresponsive_flows"},
		{"max_len", "max_pkt_len"}, {"quantum", "flow_quantum"},
	} {
		all = append(all, qdisc.Param{Name: row[1], Unit: unit(row[1]), Show: qdisc.TextOnly, Text: row[0]})
	}
	return all
}()

var statistics = []qdisc.Param{
	{Name: "memory_used", Unit: qdisc.Size, Text: " memory used: %s"},
	{Name: "memory_limit", Unit: qdisc.Size, Text: " of %s\n"},
	{Name: "capacity_estimate", Unit: qdisc.Rate, Text: " capacity estimate: %s\n"},
	{Name: "min_network_size", Unit: qdisc.Number, Text: " min/max network layer size: %12d /"},
	{Name: "max_network_size", Unit: qdisc.Number, Text: "%8d\n"},
	{Name: "min_adj_size", Unit: qdisc.Number, Text: " min/max overhead-adjusted size: %8d /"},
	{Name: "max_adj_size", Unit: qdisc.Number, Text: "%8d\n"},
	{Name: "avg_hdr_offset", Unit: qdisc.Number, Text: " average network hdr offset: %12d\n"},
	{Name: "tins", Unit: qdisc.Table, Columns: columns},
}
