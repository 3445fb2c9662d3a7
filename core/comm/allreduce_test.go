package comm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"sar/core/internal/dtypes"
)

// reduced are the types that an all-reduce takes, those of floats first.
var reduced = []dtypes.Type{dtypes.Float64, dtypes.Float32, dtypes.Float16, dtypes.BFloat16, dtypes.Int64, dtypes.Int32,
	dtypes.Uint8, dtypes.Bool}

// value reads number i of b as float64 (exact for every dtype but int64, whose
// tests keep to small numbers).
func value(d dtypes.Type, b []byte, i int) float64 {
	le := binary.LittleEndian
	switch d {
	case dtypes.Float64:
		return math.Float64frombits(le.Uint64(b[8*i:]))
	case dtypes.Float32:
		return float64(math.Float32frombits(le.Uint32(b[4*i:])))
	case dtypes.Float16:
		return halfValue(le.Uint16(b[2*i:]))
	case dtypes.BFloat16:
		return float64(math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16))
	case dtypes.Int64:
		return float64(int64(le.Uint64(b[8*i:])))
	case dtypes.Int32:
		return float64(int32(le.Uint32(b[4*i:])))
	}
	return float64(b[i])
}

// halfValue reads a float16 by its definition.
func halfValue(h uint16) float64 {
	sign := 1.0
	if h>>15 == 1 {
		sign = -1
	}
	exp, frac := int(h>>10&31), float64(h&1023)
	switch exp {
	case 31:
		if frac != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	case 0:
		return sign * math.Ldexp(frac, -24)
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

// oracle folds naively in float64, in order of ranks.
func oracle(d dtypes.Type, op ReduceOp, x []float64) float64 {
	acc := x[0]
	for _, v := range x[1:] {
		switch op {
		case Sum, Avg:
			acc += v
		case Prod:
			acc *= v
		case Min:
			if math.IsNaN(acc) || math.IsNaN(v) {
				acc = math.NaN()
			} else {
				acc = math.Min(acc, v)
			}
		case Max:
			if math.IsNaN(acc) || math.IsNaN(v) {
				acc = math.NaN()
			} else {
				acc = math.Max(acc, v)
			}
		}
		if d == dtypes.Uint8 {
			acc = float64(uint8(int64(acc)))
		}
	}
	if op == Avg {
		acc /= float64(len(x))
	}
	switch d {
	case dtypes.Int32:
		return float64(int32(int64(acc)))
	case dtypes.Bool:
		return math.Min(acc, 1)
	}
	return acc
}

// epsilon is the relative error that the dtype allows a fold of p numbers.
func epsilon(d dtypes.Type, p int) float64 {
	n := float64(p)
	switch d {
	case dtypes.Float64:
		return n * 0x1p-52
	case dtypes.Float32:
		return n * 0x1p-23
	case dtypes.Float16:
		return 0x1p-10
	case dtypes.BFloat16:
		return 0x1p-7
	}
	return 0
}

func randomNumbers(r *rand.Rand, d dtypes.Type, n int) []byte {
	b := make([]byte, n*d.Size())
	le := binary.LittleEndian
	for i := range n {
		f := float32(r.NormFloat64())
		if r.IntN(50) == 0 {
			f = float32(math.NaN())
		}
		switch d {
		case dtypes.Float64:
			le.PutUint64(b[8*i:], math.Float64bits(float64(f)*1.1))
		case dtypes.Float32:
			le.PutUint32(b[4*i:], math.Float32bits(f))
		case dtypes.Float16:
			le.PutUint16(b[2*i:], toHalf(f))
		case dtypes.BFloat16:
			le.PutUint16(b[2*i:], dtypes.ToBFloat16(f))
		case dtypes.Int64:
			le.PutUint64(b[8*i:], uint64(r.IntN(41)-20))
		case dtypes.Int32:
			le.PutUint32(b[4*i:], uint32(r.IntN(41)-20))
		case dtypes.Uint8:
			b[i] = byte(r.IntN(256))
		case dtypes.Bool:
			b[i] = byte(r.IntN(2))
		}
	}
	return b
}

func TestAllReduceAgainstOracle(t *testing.T) {
	for _, p := range worlds {
		// Small frames, so that the large way takes many steps, and one size
		// that takes it with large ones.
		noErrors(t, onRanks(t, Config{World: p}, 4096*max(1, p-1), func(c *Communicator) error {
			wide, err := c.Group().NewCommunicator("wide", 64<<10*max(1, p-1))
			if err != nil {
				return err
			}
			for _, d := range reduced {
				for op := range numReduceOps {
					if op == Avg && !slices.Contains(reduced[:4], d) {
						continue
					}
					for _, n := range []int{0, 1, 3, 1001} {
						if err := checkAllReduce(c, d, op, n); err != nil {
							return fmt.Errorf("P %d, %s of %d %s: %w", p, op, n, d, err)
						}
					}
				}
				if err := checkAllReduce(wide, d, Max, flatBytes/d.Size()+5); err != nil {
					return fmt.Errorf("P %d, max of %s: %w", p, d, err)
				}
			}
			return nil
		}))
	}
}

func checkAllReduce(c *Communicator, d dtypes.Type, op ReduceOp, n int) error {
	p := c.World()
	in := make([][]byte, p)
	for r := range in {
		in[r] = randomNumbers(rand.New(rand.NewPCG(uint64(r), uint64(n)<<16|uint64(d)<<8|uint64(op))), d, n)
		if d == dtypes.Bool && p > 1 { // any byte but 0 is true; one worker keeps its own
			for i := range in[r] {
				in[r][i] *= byte(1 + i%7)
			}
		}
	}
	const guard = 8
	buf := make([]byte, len(in[0])+2*guard)
	for i := range buf {
		buf[i] = 0xa5
	}
	own := buf[guard : len(buf)-guard]
	copy(own, in[c.Rank()])
	if err := c.AllReduce(own, d, op); err != nil {
		return err
	}
	for i := range guard {
		if buf[i] != 0xa5 || buf[len(buf)-1-i] != 0xa5 {
			return fmt.Errorf("wrote outside of the buffer")
		}
	}
	x := make([]float64, p)
	for i := range n {
		scale := 0.0
		for r := range p {
			x[r] = value(d, in[r], i)
			scale += math.Abs(x[r])
		}
		got, want := value(d, own, i), oracle(d, op, x)
		if op == Prod || op == Min || op == Max {
			scale = math.Abs(want) + 0x1p-14
		}
		if math.IsNaN(want) != math.IsNaN(got) || math.Abs(got-want) > epsilon(d, p)*scale && got != want {
			return fmt.Errorf("number %d is %v, not %v, of %v", i, got, want, x)
		}
	}
	// Everyone's bits are rank 0's.
	ref := bytes.Clone(own)
	if err := c.Broadcast(ref, 0); err != nil {
		return err
	}
	if !bytes.Equal(ref, own) {
		return fmt.Errorf("other bits than on rank 0")
	}
	return nil
}

func TestHalvesRoundTrip(t *testing.T) {
	for h := range 1 << 16 {
		f := fromHalf(uint16(h))
		if want := halfValue(uint16(h)); float64(f) != want && !math.IsNaN(want) {
			t.Fatalf("%#04x is %v, not %v", h, f, want)
		}
		if math.IsNaN(float64(f)) {
			if back := toHalf(f); back&0x7fff <= 0x7c00 {
				t.Fatalf("NaN %#04x became %#04x", h, back)
			}
		} else if back := toHalf(f); back != uint16(h) {
			t.Fatalf("%#04x came back as %#04x", h, back)
		}
		if g := dtypes.FromBFloat16(uint16(h)); g == g && dtypes.ToBFloat16(g) != uint16(h) {
			t.Fatalf("bfloat16 %#04x came back as %#04x", h, dtypes.ToBFloat16(g))
		}
	}
	// Rounding: to the nearest, ties to even.
	for h := range uint16(0x7bff) {
		a, b := float64(fromHalf(h)), float64(fromHalf(h+1))
		mid := (a + b) / 2
		for _, f := range []float32{float32(mid), math.Nextafter32(float32(mid), 0), math.Nextafter32(float32(mid), 1e9)} {
			want := h
			if float64(f) > mid || float64(f) == mid && h&1 == 1 {
				want = h + 1
			}
			if got := toHalf(f); got != want {
				t.Fatalf("%v rounds to %#04x, not %#04x", f, got, want)
			}
		}
	}
}

// Two communicators are used at once from two goroutines of each rank, which
// drift apart.
func TestCommunicatorsOverlap(t *testing.T) {
	groups, err := Local(Config{World: 4})
	if err != nil {
		t.Fatal(err)
	}
	noErrors(t, runRanks(t, groups, func(g *Group) error {
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i := range 2 {
			c, err := g.NewCommunicator(fmt.Sprintf("c%d", i), 1<<16)
			if err != nil {
				return err
			}
			wg.Go(func() {
				for k := range 15 {
					n := 1 + (k*977)%30_000
					if errs[i] = checkAllReduce(c, dtypes.Float32, Sum, n*(i+1)%20_000); errs[i] != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		if errs[0] != nil {
			return errs[0]
		}
		return errs[1]
	}))
}

// The bytes that an operation sends are what its comment says.
func TestAllReduceBytes(t *testing.T) {
	const p, n = 4, 400_000
	noErrors(t, onRanks(t, Config{World: p}, 3<<20, func(c *Communicator) error {
		if err := c.AllReduce(make([]byte, n), dtypes.Float32, Sum); err != nil {
			return err
		}
		sent := c.Group().Stats().Operations["all-reduce"].SentBytes
		least := uint64(2 * n * (p - 1) / p)
		if sent < least || sent > least+least/100 {
			return fmt.Errorf("sent %d bytes, not %d and 1 %%", sent, least)
		}
		return nil
	}))
}
