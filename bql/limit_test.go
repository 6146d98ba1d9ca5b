package bql_test

import (
	"testing"

	"sluice/bql"
)

func TestCompletingMoreThanQueuedPanics(t *testing.T) {
	var l bql.Limit
	l.Init(0)
	l.Queued(1000, 0)
	l.Completed(400, 0)
	defer func() {
		if recover() == nil {
			t.Error("601 bytes of 600 in flight were completed without a panic")
		}
	}()
	l.Completed(601, 0)
}

func TestObjectTooLargeIsIgnored(t *testing.T) {
	var l bql.Limit
	l.Init(0)
	l.Queued(1000, 0)
	want := l.Snapshot()
	l.Queued(bql.MaxObject+1, 0)
	if got := l.Snapshot(); got != want {
		t.Errorf("after an object of %d bytes: %+v, want %+v", bql.MaxObject+1, got, want)
	}
	l.Queued(bql.MaxObject, 0)
	if got := l.Inflight(); got != 1000+bql.MaxObject {
		t.Errorf("after the largest object: %d bytes in flight", got)
	}
}

func TestDefaults(t *testing.T) {
	var l bql.Limit
	l.Init(0)
	want := bql.Snapshot{Max: 1_879_048_192, HoldTime: 1000}
	if got := l.Snapshot(); got != want {
		t.Errorf("fresh limit: %+v, want %+v", got, want)
	}
}

func TestSettersRefuseWhatSysfsRefuses(t *testing.T) {
	var l bql.Limit
	l.Init(0)
	for name, set := range map[string]func(uint32) error{"limit": l.SetLimit, "min": l.SetMin, "max": l.SetMax} {
		if set(bql.MaxLimit) != nil || set(0) != nil {
			t.Errorf("%s: 0 or the maximum was refused", name)
		}
		if set(bql.MaxLimit+1) == nil {
			t.Errorf("%s: more than the maximum was taken", name)
		}
	}
	for threshold, ok := range map[bql.Tick]bool{-4: false, 0: true, 1: false, 3: false, 4: true, 128: true, 129: false} {
		before := l.Snapshot().StallThreshold
		err := l.SetStallThreshold(threshold, 0)
		if (err == nil) != ok {
			t.Errorf("stall threshold %d: %v", threshold, err)
		}
		if got := l.Snapshot().StallThreshold; ok && got != threshold || !ok && got != before {
			t.Errorf("stall threshold is %d after setting %d", got, threshold)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for s, want := range map[string]uint32{
		"0":             0,
		"3028":          3028,
		"3028\n":        3028,
		"1879048192":    1879048192,
		"max":           1879048192,
		"max\n":         1879048192,
		"00000000012":   12,
		"1879048191\n":  1879048191,
		"0000000000000": 0,
	} {
		if got, err := bql.ParseLimit(s); err != nil || got != want {
			t.Errorf("ParseLimit(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "\n", "-1", "1.5", "0x10", "10k", "MAX", "maximum", " 1", "1 ", "1\n\n",
		"1879048193", "4294967295", "4294967296", "99999999999999999999"} {
		if got, err := bql.ParseLimit(s); err == nil {
			t.Errorf("ParseLimit(%q) = %d, want an error", s, got)
		}
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"0", "max\n", "1879048192", "1879048193", "-1", "1e9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := bql.ParseLimit(s)
		var l bql.Limit
		l.Init(0)
		if err == nil && l.SetLimit(n) != nil {
			t.Errorf("ParseLimit(%q) gives %d, which SetLimit refuses", s, n)
		}
	})
}

func TestNothingAllocates(t *testing.T) {
	var l bql.Limit
	l.Init(0)
	if err := l.SetStallThreshold(8, 0); err != nil {
		t.Fatal(err)
	}
	now := bql.Tick(0)
	if n := testing.AllocsPerRun(1000, func() { now = round(&l, now) }); n != 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
}

// round queues 32 frames and completes what is in flight, a tick apart.
func round(l *bql.Limit, now bql.Tick) bql.Tick {
	for range 32 {
		l.Queued(1514, now)
		if l.Avail() < 0 {
			break
		}
	}
	l.Completed(l.Inflight(), now+1)
	return now + 1
}

// One operation is a round of 32 frames and one completion.
func BenchmarkRound(b *testing.B) {
	for name, threshold := range map[string]bql.Tick{"stall=off": 0, "stall=8": 8} {
		b.Run(name, func(b *testing.B) {
			var l bql.Limit
			l.Init(0)
			if err := l.SetStallThreshold(threshold, 0); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			now := bql.Tick(0)
			for b.Loop() {
				now = round(&l, now)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/frame")
		})
	}
}
