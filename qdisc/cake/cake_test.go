package cake_test

import (
	"testing"
	"time"

	"sluice/qdisc"
	"sluice/qdisc/cake"
	"sluice/qdisc/qdisctest"
)

// given makes values of tc's words; a word with a value is "word=N".
func given(kv ...any) qdisc.Values {
	v := qdisc.Values{}
	for i := 0; i < len(kv); i++ {
		name := kv[i].(string)
		for _, p := range cake.Kind.Params {
			if p.Name != name {
				continue
			}
			switch {
			case p.Apply != nil:
				p.Apply(v)
			case p.Unit == qdisc.Flag:
				v.Set(name, 1)
			default:
				i++
				switch n := kv[i].(type) {
				case int:
					v.Set(name, uint64(n))
				case time.Duration:
					v.Set(name, uint64(n))
				}
			}
		}
	}
	return v
}

func build(t testing.TB, kv ...any) qdisc.Qdisc {
	t.Helper()
	q, err := cake.Kind.New(qdisctest.Env(1), given(kv...))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		v         qdisc.Values
		throttles bool
	}{
		"unlimited":     {given(), false},
		"flows":         {given("besteffort", "flows"), false},
		"shaped":        {given("bandwidth", 125_000), true},
		"eight":         {given("bandwidth", 1_000_000, "diffserv8", "dual-srchost", "rtt", time.Millisecond), true},
		"precedence":    {given("precedence", "hosts", "wash", "fwmark", 0xf), false},
		"blind":         {given("flowblind", "bandwidth", 12_500_000, "ack-filter", "ingress", "ethernet"), true},
		"short of room": {given("memlimit", 12_000, "diffserv4", "rtt", 100*time.Microsecond), false},
		"cells":         {given("bandwidth", 500_000, "pppoe-llcsnap", "ingress", "lan", "memlimit", 20_000), true},
		"autorate":      {given("autorate-ingress", "bandwidth", 125_000), true},
	} {
		t.Run(name, func(t *testing.T) {
			qdisctest.Run(t, qdisctest.Config{
				Name:      "cake",
				New:       func(env qdisc.Env) qdisc.Qdisc { q, _ := cake.Kind.New(env, c.v); return q },
				Throttles: true,
				Order:     func(p *qdisc.Packet) uint64 { return uint64(p.Priority)<<32 | uint64(p.Mark) },
				Changes: []qdisc.Values{
					given("bandwidth", 125_000),
					given("bandwidth", 125_000_000, "diffserv4", "memlimit", 10_000),
					given("besteffort", "flowblind"),
					given("unlimited", "triple-isolate", "diffserv8", "fwmark", 7),
					given("dual-dsthost", "lan", "ingress", "memlimit", 0),
					given("overhead", 40, "atm", "mpu", 64),
					given("autorate-ingress"),
					given(),
				},
			})
		})
	}
}

// newFrom makes a cake of another one's Dump.
func newFrom(v qdisc.Values) (qdisc.Qdisc, error) { return cake.Kind.New(qdisctest.Env(1), v) }

func TestScripts(t *testing.T) {
	qdisctest.Script(t, "testdata", &cake.Kind)
}
