package dequeue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"sluice/dequeue"
	"sluice/dequeue/dequeuetest"
	"sluice/qdisc"
)

// The scripts of testdata are a worker's transmit side in single steps, several
// to a block. Each answers with what the devices saw (see Rig.Log).
//
//	new
//	device NAME ring=N [avail=BYTES] [max=BYTES] [completions=none|peer] [nobql]
//	       [bell=turn|list|packet] [interval=D] [batch=N] [timeout=D] [lie=N] [swift] [down]
//	lane NAME tx=DEVICE|(DEVICE, …) [mode=packets|budget|restarts|unlimited] [quota=N]
//	       [bypass] [direct] [limit=N]
//	send LANE N [len=BYTES] [band=N] [queue=N]     one burst; 1514 bytes by default
//	reap | pass | flush | turn                     steps of a turn, or a whole one
//	count                                          a pass, answered in numbers
//	complete DEVICE N                              the device is done with N packets
//	set DEVICE [refuse=(AFTER, TIMES)] [kicks=(KICK, …)] [again=N] [part=N] [down|up] [lost] [flushed] [lie=N]
//	bql DEVICE max=BYTES
//	time D                                         the clock moves on by D
//	throttle LANE D                                yields nothing until now + D
//	freeze | unfreeze | reset | watchdog DEVICE
//	schedule LANE
//	lane-reset | close LANE
//	move LANE DEVICE                               SetTxqs
//	state                                          every lane and device
type script struct {
	rig *dequeuetest.Rig
}

// runScript plays testdata/NAME.txt.
func runScript(t *testing.T, name string) {
	t.Helper()
	var s script
	datadriven.RunTest(t, "testdata/"+name+".txt", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		out.WriteString(s.run(t, d))
		for line := range strings.Lines(d.Input) {
			cmd, args, err := datadriven.ParseLine(line)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			out.WriteString(s.run(t, &datadriven.TestData{Pos: d.Pos, Cmd: cmd, CmdArgs: args}))
		}
		return out.String()
	})
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	rig := s.rig
	switch d.Cmd {
	case "new":
		s.rig = dequeuetest.NewRig(8192)
	case "device":
		s.device(t, d)
	case "lane":
		s.lane(t, d)
	case "send":
		kind := dequeuetest.Packet{
			Len:      number(t, d, "len", 1514),
			Priority: uint32(number(t, d, "band", 0)),
			Queue:    uint16(number(t, d, "queue", 0)),
		}
		s.findLane(t, d).Send(count(t, d), kind)
		return rig.Log()
	case "reap":
		rig.Reap()
		return s.log()
	case "pass":
		rig.Sched.Pass(rig.Ctx)
		return s.log()
	case "flush":
		rig.Flush()
		return s.log()
	case "turn":
		rig.Turn()
		return s.log()
	case "count":
		return s.count()
	case "complete":
		s.findDevice(t, d).Driver.Complete(count(t, d))
		return rig.Log()
	case "set":
		s.set(t, d)
	case "bql":
		if err := s.findDevice(t, d).Txq.BQL().SetMax(uint32(number(t, d, "max", 0))); err != nil {
			d.Fatalf(t, "%v", err)
		}
	case "time":
		rig.Ctx.Now += duration(t, d, d.CmdArgs[0].Key)
	case "throttle":
		s.findLane(t, d).Queue.OpenAt = rig.Ctx.Now + duration(t, d, d.CmdArgs[1].Key)
	case "freeze":
		s.findDevice(t, d).Txq.Freeze()
	case "unfreeze":
		s.findDevice(t, d).Txq.Unfreeze()
	case "reset":
		dev := s.findDevice(t, d)
		dev.Txq.Reset(rig.Ctx, dev.Driver)
	case "watchdog":
		if late, stalled := s.findDevice(t, d).Txq.CheckTimeout(rig.Ctx); late {
			return fmt.Sprintf("timed out, stalled for %v\n", stalled)
		}
		return "fine\n"
	case "schedule":
		rig.Sched.Schedule(s.findLane(t, d).Runner)
	case "lane-reset":
		s.findLane(t, d).Runner.Reset(rig.Ctx)
	case "close":
		s.findLane(t, d).Runner.Close(rig.Ctx)
		return rig.Log()
	case "move":
		txq := s.deviceNamed(t, d, d.CmdArgs[1].Key).Txq
		s.findLane(t, d).Runner.SetTxqs(rig.Ctx, []*dequeue.Txq{txq})
		return rig.Log()
	case "state":
		return s.state()
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	return ""
}

func (s *script) log() string {
	if log := s.rig.Log(); log != "" {
		return log
	}
	return "nothing\n"
}

// count runs a pass and tells only how much it was.
func (s *script) count() string {
	var b strings.Builder
	var before []dequeue.RunnerStats
	for _, l := range s.rig.Lanes {
		before = append(before, l.Runner.Stats())
	}
	s.rig.Sched.Pass(s.rig.Ctx)
	s.rig.Log()
	for i, l := range s.rig.Lanes {
		n := l.Runner.Stats()
		fmt.Fprintf(&b, "%s: %d packets in %d lists\n", l.Name,
			n.Packets-before[i].Packets, n.Restarts-before[i].Restarts)
	}
	return b.String()
}

func (s *script) device(t *testing.T, d *datadriven.TestData) {
	driver := &dequeuetest.Driver{
		Size:  number(t, d, "ring", 1024),
		Lie:   number(t, d, "lie", 0),
		Kind:  dequeue.CompleteDevice,
		Swift: d.HasArg("swift"),
		Gone:  d.HasArg("down"),
	}
	switch word(t, d, "completions", "device") {
	case "none":
		driver.Kind = dequeue.CompleteNone
	case "peer":
		driver.Kind = dequeue.CompletePeer
	}
	c := dequeue.TxqConfig{
		NoBQL:         d.HasArg("nobql"),
		MinLimit:      uint32(number(t, d, "avail", 0)),
		MaxLimit:      uint32(number(t, d, "max", 0)),
		FlushBatch:    number(t, d, "batch", 0),
		FlushInterval: duration(t, d, word(t, d, "interval", "0s")),
		Timeout:       duration(t, d, word(t, d, "timeout", "0s")),
	}
	switch word(t, d, "bell", "turn") {
	case "list":
		c.Doorbell = dequeue.DoorbellList
	case "packet":
		c.Doorbell = dequeue.DoorbellPacket
	}
	s.rig.AddDevice(d.CmdArgs[0].Key, driver, c)
}

var modes = map[string]dequeue.QuotaMode{
	"packets": dequeue.QuotaPackets, "budget": dequeue.QuotaBudget,
	"restarts": dequeue.QuotaRestarts, "unlimited": dequeue.QuotaUnlimited,
}

func (s *script) lane(t *testing.T, d *datadriven.TestData) {
	c := dequeue.RunnerConfig{
		Quota: number(t, d, "quota", 0),
		Mode:  modes[word(t, d, "mode", "packets")],
	}
	arg, ok := d.Arg("tx")
	if !ok {
		d.Fatalf(t, "a lane needs tx=")
	}
	for _, name := range arg.Vals {
		c.Txqs = append(c.Txqs, s.deviceNamed(t, d, name).Txq)
	}
	q := &dequeuetest.Queue{
		Limit:  number(t, d, "limit", 0),
		Bypass: d.HasArg("bypass"),
		Direct: d.HasArg("direct"),
	}
	s.rig.AddLane(d.CmdArgs[0].Key, q, c)
}

var kicks = map[string]dequeue.Kick{
	"all": dequeue.KickAll, "again": dequeue.KickAgain,
	"stopped": dequeue.KickStopped, "down": dequeue.KickDown,
}

func (s *script) set(t *testing.T, d *datadriven.TestData) {
	driver := s.findDevice(t, d).Driver
	for _, arg := range d.CmdArgs[1:] {
		switch arg.Key {
		case "refuse":
			var after, times int
			arg.Scan(t, 0, &after)
			arg.Scan(t, 1, &times)
			driver.Refuse(after, times)
		case "kicks":
			for _, k := range arg.Vals {
				driver.Kicks = append(driver.Kicks, kicks[k])
			}
		case "again":
			var n int
			arg.Scan(t, 0, &n)
			for range n {
				driver.Kicks = append(driver.Kicks, dequeue.KickAgain)
			}
		case "part":
			arg.Scan(t, 0, &driver.Part)
		case "lie":
			arg.Scan(t, 0, &driver.Lie)
		case "down":
			driver.Gone = true
		case "up":
			driver.Gone = false
		case "lost":
			driver.Lose()
		case "flushed":
			driver.Flush()
		default:
			d.Fatalf(t, "unknown setting %q", arg.Key)
		}
	}
}

func (s *script) state() string {
	var b strings.Builder
	for _, l := range s.rig.Lanes {
		r := l.Runner
		held, _ := l.Queue.Held()
		fmt.Fprintf(&b, "%s: len %d backlog %d held %d requeues %d", l.Name, r.Len(), r.Backlog(), held, l.Queue.Requeues)
		if r.Waiting() {
			b.WriteString(" waiting")
		}
		if at := r.NextAt(); at != qdisc.Never {
			fmt.Fprintf(&b, " at %v", at)
		}
		b.WriteByte('\n')
	}
	for _, dev := range s.rig.Devices {
		q := dev.Txq
		st := q.Stats()
		fmt.Fprintf(&b, "%s: unrung %d in flight %d", dev.Name, st.Unrung, st.InFlight)
		if st.Limited {
			fmt.Fprintf(&b, " avail %d", q.BQL().Avail())
		}
		if q.Stopped() {
			b.WriteString(" stopped")
		}
		if q.Frozen() {
			b.WriteString(" frozen")
		}
		if q.Down() {
			b.WriteString(" down")
		}
		if at := q.NextFlush(); at != qdisc.Never {
			fmt.Fprintf(&b, " flush at %v", at)
		}
		b.WriteByte('\n')
	}
	if s.rig.Sched.Pending() {
		b.WriteString("scheduled\n")
	}
	return b.String()
}

func (s *script) findDevice(t *testing.T, d *datadriven.TestData) *dequeuetest.Device {
	return s.deviceNamed(t, d, d.CmdArgs[0].Key)
}

func (s *script) deviceNamed(t *testing.T, d *datadriven.TestData, name string) *dequeuetest.Device {
	for _, dev := range s.rig.Devices {
		if dev.Name == name {
			return dev
		}
	}
	d.Fatalf(t, "no device %q", name)
	return nil
}

func (s *script) findLane(t *testing.T, d *datadriven.TestData) *dequeuetest.Lane {
	for _, l := range s.rig.Lanes {
		if l.Name == d.CmdArgs[0].Key {
			return l
		}
	}
	d.Fatalf(t, "no lane %q", d.CmdArgs[0].Key)
	return nil
}

// count returns the second argument.
func count(t *testing.T, d *datadriven.TestData) (n int) {
	if _, err := fmt.Sscan(d.CmdArgs[1].Key, &n); err != nil {
		d.Fatalf(t, "how many? %v", err)
	}
	return n
}

func number(t *testing.T, d *datadriven.TestData, key string, n int) int {
	d.MaybeScanArgs(t, key, &n)
	return n
}

func word(t *testing.T, d *datadriven.TestData, key, def string) string {
	d.MaybeScanArgs(t, key, &def)
	return def
}

func duration(t *testing.T, d *datadriven.TestData, s string) time.Duration {
	v, err := time.ParseDuration(s)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return v
}
