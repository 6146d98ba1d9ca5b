package rate_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/qdisc/internal/rate"
)

// The vectors of the kernel's own arithmetic, l2t(64) and l2t(1500).
func TestL2TIsTheKernels(t *testing.T) {
	for _, c := range []struct{ rate, small, full uint64 }{
		{8_000, 8_000_000, 187_500_000},
		{125_000, 512_000, 12_000_000},
		{12_500_000, 5_120, 120_000},
		{125_000_000, 512, 12_000},
		{1_250_000_000, 51, 1_199}, // 51.2 and 1200: the multiplier is cut off too
		{12_500_000_000, 5, 119},   // above 32 bits
	} {
		r := rate.New(rate.Config{Rate: c.rate})
		if got := r.L2T(64); got != c.small {
			t.Errorf("%d B/s: 64 bytes take %d ns, want %d", c.rate, got, c.small)
		}
		if got := r.L2T(1500); got != c.full {
			t.Errorf("%d B/s: 1500 bytes take %d ns, want %d", c.rate, got, c.full)
		}
	}
}

func TestATMCountsCells(t *testing.T) {
	r := rate.New(rate.Config{Rate: 125_000, ATM: true})
	for n, want := range map[uint32]uint64{1: 424_000, 40: 424_000, 48: 424_000, 49: 848_000, 1500: 13_568_000} {
		if got := r.L2T(n); got != want {
			t.Errorf("%d bytes in cells take %d ns, want %d", n, got, want)
		}
	}
}

// Overhead is added before the minimum is applied, cells come after both.
func TestOverheadThenMinimumThenCells(t *testing.T) {
	for _, c := range []struct {
		rate.Config
		n    uint32
		want uint64
	}{
		{rate.Config{Rate: 1, Overhead: 24}, 100, 124},
		{rate.Config{Rate: 1, Overhead: 24, MPU: 64}, 30, 64},
		{rate.Config{Rate: 1, Overhead: 24, MPU: 64}, 41, 65},
		{rate.Config{Rate: 1, Overhead: 24, MPU: 64, ATM: true}, 30, 106},
		{rate.Config{Rate: 1, Overhead: 65535, MPU: 65535, ATM: true}, 1<<32 - 1, 4_742_432_103},
	} {
		r := rate.New(c.Config)
		if got := r.Wire(c.n); got != c.want {
			t.Errorf("%+v: %d bytes count for %d, want %d", c.Config, c.n, got, c.want)
		}
	}
}

// Against arithmetic of unlimited width: never too long, short by less than a
// nanosecond plus the multiplier's 2⁻³¹, whatever the size and the rate.
func TestL2TNeverOverflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := config(t)
		n := rapid.Uint32().Draw(t, "bytes")
		r := rate.New(c)

		exact := new(big.Int).SetUint64(r.Wire(n))
		exact.Mul(exact, big.NewInt(int64(time.Second)))
		exact.Quo(exact, new(big.Int).SetUint64(c.Rate))
		if !exact.IsUint64() {
			t.Skip()
		}
		got, want := r.L2T(n), exact.Uint64()
		if got > want || want-got > 1+want>>31+want>>32 {
			t.Fatalf("%+v: %d bytes take %d ns, exactly %d", c, n, got, want)
		}
	})
}

func TestT2LIsTheInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := config(t)
		c.MPU = 0
		r := rate.New(c)
		n := rapid.Uint32Range(0, 1<<20).Draw(t, "bytes")
		// The time of n bytes, rounded up, holds n bytes (in cells: their
		// whole cells) and not a nanosecond's worth more.
		d := r.Wait(r.Cost(n))
		got := r.T2L(d)
		slack := uint64(c.Rate)/uint64(time.Second) + 1
		if c.ATM {
			slack += 48
		}
		if got < uint64(n) || got > uint64(n)+slack {
			t.Fatalf("%+v: %v, the time of %d bytes, holds %d", c, d, n, got)
		}
	})
}

// A debt is paid off at the rate, also one as large as there can be.
func TestBucketPaysDebts(t *testing.T) {
	const debt = 1 << 62
	r := rate.New(rate.Config{Rate: 12_500_000_000})
	b := rate.NewBucket(r, 1<<32-1)
	b.Settle(-debt)
	if left := b.After(time.Millisecond, 0); left != -debt+int64(12_500_000_000*time.Millisecond) {
		t.Errorf("after 1 ms %d is left of it", left)
	}
	if left := b.After(b.Wait(debt), 0); left < 0 || left >= 12_500_000_000 {
		t.Errorf("when it is paid, the bucket holds %d", left)
	}
	if left := b.After(time.Hour, 0); left != b.Cost(1<<32-1) {
		t.Errorf("after an hour the bucket holds %d, want it full", left)
	}
}

func TestT2LHasAFloorAndACeiling(t *testing.T) {
	r := rate.New(rate.Config{Rate: 1 << 60, Overhead: 100})
	if got := r.T2L(0); got != 0 {
		t.Errorf("no time holds %d bytes", got)
	}
	if got := r.T2L(-time.Second); got != 0 {
		t.Errorf("less than no time holds %d bytes", got)
	}
	if got := r.T2L(1 << 62); got < 1<<63 {
		t.Errorf("all time holds %d bytes", got)
	}
}

// A bucket that is asked for the earliest instant, again and again, sends the
// k-th packet exactly when the rate has earned it: the rounding of one instant
// never shifts the next.
func TestBucketNeverDrifts(t *testing.T) {
	for _, R := range []uint64{1_250_000, 12_500_000, 125_000_000, 1_250_000_000, 12_500_000_000, 99_999_989, 7_777_777_777} {
		for _, n := range []uint32{64, 577, 1500} {
			b := rate.NewBucket(rate.New(rate.Config{Rate: R}), n)
			var now, at time.Duration
			b.Settle(b.After(0, n))
			for k := int64(1); k <= 10_000; k++ {
				left := b.After(now-at, n)
				if left < 0 {
					now += b.Wait(-left)
					left = b.After(now-at, n)
				}
				if left < 0 {
					t.Fatalf("%d B/s: packet %d still short of %d after waiting", R, k, -left)
				}
				at = now
				b.Settle(left)
				exact := new(big.Int).Mul(big.NewInt(k*int64(n)), big.NewInt(int64(time.Second)))
				exact.Add(exact, new(big.Int).SetUint64(R-1))
				exact.Quo(exact, new(big.Int).SetUint64(R))
				if now != time.Duration(exact.Int64()) {
					t.Fatalf("%d B/s: packet %d of %d bytes leaves at %d ns, want %d", R, k, n, now, exact)
				}
			}
		}
	}
}

// However it is used, a bucket never holds more than its depth and a
// nanosecond's credit, and never lets more than depth + elapsed × rate through.
func TestBucketIsABound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := config(t)
		burst := rapid.Uint32Range(1, 1<<32-1).Draw(t, "burst")
		b := rate.NewBucket(rate.New(c), burst)
		var now, at time.Duration
		sent := new(big.Int)
		bound := big.NewInt(b.Cost(burst))
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			step := rapid.Int64Range(0, 1<<rapid.IntRange(0, 55).Draw(t, "scale")).Draw(t, "step")
			now += time.Duration(step)
			bound.Add(bound, new(big.Int).Mul(big.NewInt(step), new(big.Int).SetUint64(c.Rate)))
			n := rapid.Uint32Range(1, burst).Draw(t, "bytes")
			left := b.After(now-at, n)
			if left-int64(c.Rate) >= b.Cost(burst)-b.Cost(n) {
				t.Fatalf("the bucket holds more than it can: %d left", left)
			}
			if left < 0 {
				continue
			}
			at = now
			b.Settle(left)
			if sent.Add(sent, big.NewInt(b.Cost(n))); sent.Cmp(bound) > 0 {
				t.Fatalf("let %v through, earned %v", sent, bound)
			}
		}
	})
}

func config(t *rapid.T) rate.Config {
	return rate.Config{
		Rate:     rapid.Uint64Range(1, 1<<rapid.IntRange(0, 40).Draw(t, "bits")).Draw(t, "rate"),
		Overhead: rapid.Uint16().Draw(t, "overhead"),
		MPU:      rapid.Uint16().Draw(t, "mpu"),
		ATM:      rapid.Bool().Draw(t, "atm"),
	}
}

func BenchmarkL2T(b *testing.B) {
	r := rate.New(rate.Config{Rate: 125_000_000})
	var sum uint64
	for i := range b.N {
		sum += r.L2T(uint32(i) & 1023)
	}
	sink = sum
}

func BenchmarkAfter(b *testing.B) {
	bucket := rate.NewBucket(rate.New(rate.Config{Rate: 125_000_000}), 15_000)
	var sum int64
	for i := range b.N {
		sum += bucket.After(time.Duration(i&0xffff), 1500)
	}
	sink = uint64(sum)
}

var sink uint64
