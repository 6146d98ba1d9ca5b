package kernel

import (
	"errors"
	"math"
	"sync"

	"github.com/florianl/go-tc"
	"github.com/florianl/go-tc/core"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// TC changes the kernel's tc objects. One goroutine may use it at a time.
type TC struct {
	tc   *tc.Tc
	conn *netlink.Conn // for kinds that go-tc lacks
}

// clock tells go-tc the length of the packet scheduler's tick.
var clock = sync.OnceValue(core.InitializeClock)

// OpenTC opens a TC in the calling thread's namespace.
func OpenTC() (*TC, error) {
	if err := clock(); err != nil {
		return nil, opError("read /proc/net/psched", "", "", err)
	}
	t, err := tc.Open(nil)
	if err != nil {
		return nil, opError("open rtnetlink", "", "", err)
	}
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		t.Close()
		return nil, opError("open rtnetlink", "", "", err)
	}
	// Old kernels lack these; errors are less talkative then.
	_ = t.SetOption(netlink.ExtendedAcknowledge, true)
	_ = conn.SetOption(netlink.ExtendedAcknowledge, true)
	return &TC{t, conn}, nil
}

// Close closes the sockets.
func (t *TC) Close() error { return errors.Join(t.tc.Close(), t.conn.Close()) }

func (w Where) msg() tc.Msg {
	return tc.Msg{Family: unix.AF_UNSPEC, Ifindex: uint32(w.Ifindex), Parent: w.Parent, Handle: w.Handle}
}

// ReplacePfifo puts a pfifo at w in place of what is there.
func (t *TC) ReplacePfifo(w Where, p Pfifo) error {
	return t.replace(w, tc.Attribute{Kind: "pfifo", Pfifo: &tc.FifoOpt{Limit: uint32(p.Limit)}})
}

// ReplaceTbf puts a tbf at w in place of what is there. The kernel computes the
// burst in time from TCA_TBF_BURST, exactly, where tc's ticks round.
func (t *TC) ReplaceTbf(w Where, p Tbf) error {
	rate, err := rateSpec(p.Rate)
	if err != nil {
		return opError("replace qdisc", "", "tbf", err)
	}
	return t.replace(w, tc.Attribute{Kind: "tbf", Tbf: &tc.Tbf{
		Parms: &tc.TbfQopt{Rate: rate, Limit: p.Limit, Buffer: ticks(p.Burst, p.Rate)},
		Burst: &p.Burst,
	}})
}

// ReplaceHtb puts an htb at w in place of what is there.
func (t *TC) ReplaceHtb(w Where, p Htb) error {
	return t.replace(w, tc.Attribute{Kind: "htb", Htb: &tc.Htb{
		Init: &tc.HtbGlob{Version: 3, Rate2Quantum: 10, Defcls: p.Default},
	}})
}

// ReplaceHtbClass adds or changes the class w.Handle of an htb.
func (t *TC) ReplaceHtbClass(w Where, c HtbClass) error {
	if c.Ceil == 0 {
		c.Ceil = c.Rate
	}
	rate, err := rateSpec(c.Rate)
	ceil, cerr := rateSpec(c.Ceil)
	if err = errors.Join(err, cerr); err == nil {
		err = t.tc.Class().Replace(&tc.Object{Msg: w.msg(), Attribute: tc.Attribute{Kind: "htb", Htb: &tc.Htb{
			Parms: &tc.HtbOpt{
				Rate: rate, Ceil: ceil, Quantum: c.Quantum, Prio: c.Prio,
				Buffer: ticks(c.Burst, c.Rate), Cbuffer: ticks(c.Cburst, c.Ceil),
			},
		}}})
	}
	return opError("replace class", "", "htb", err)
}

// ReplaceMq puts mq at the root: a default qdisc for each transmit queue.
func (t *TC) ReplaceMq(ifindex int) error {
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.TCA_KIND, "mq")
	attrs, err := ae.Encode()
	if err == nil {
		err = t.execute(unix.RTM_NEWQDISC, netlink.Create|netlink.Replace,
			Where{Ifindex: ifindex, Parent: HandleRoot}, attrs)
	}
	return opError("replace qdisc", "", "mq", err)
}

// DeleteQdisc removes the qdisc at w, of whatever kind. At the root the device's
// default comes back.
func (t *TC) DeleteQdisc(w Where) error {
	return opError("delete qdisc", "", "", t.execute(unix.RTM_DELQDISC, 0, w, nil))
}

// DeleteClass removes the class w.Handle.
func (t *TC) DeleteClass(w Where) error {
	return opError("delete class", "", "", t.execute(unix.RTM_DELTCLASS, 0, w, nil))
}

// execute sends what go-tc can't: kinds it lacks, and deletion without a kind.
func (t *TC) execute(typ netlink.HeaderType, flags netlink.HeaderFlags, w Where, attrs []byte) error {
	_, err := t.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Acknowledge | flags},
		Data:   append(tcmsg(w.Ifindex, w.Handle, w.Parent), attrs...),
	})
	return err
}

func (t *TC) replace(w Where, a tc.Attribute) error {
	err := t.tc.Qdisc().Replace(&tc.Object{Msg: w.msg(), Attribute: a})
	return opError("replace qdisc", "", a.Kind, err)
}

func rateSpec(bytesPerSecond uint64) (tc.RateSpec, error) {
	if bytesPerSecond >= math.MaxUint32 {
		return tc.RateSpec{}, errors.New("rates of 4 GB/s and more are not written here")
	}
	return tc.RateSpec{Rate: uint32(bytesPerSecond), Linklayer: 1}, nil // 1: Ethernet, no rate table needed
}

// ticks is how long size bytes take at rate, in the packet scheduler's ticks.
// Not core.XmitTime, which cuts off to microseconds.
func ticks(size uint32, rate uint64) uint32 {
	if rate == 0 {
		return 0
	}
	micros := float64(size) / float64(rate) * 1e6
	return uint32(min(micros*core.GetTickInUSec(), math.MaxUint32))
}
