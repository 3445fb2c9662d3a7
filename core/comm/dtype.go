package comm

import (
	"fmt"
	"math"

	"sar/core/internal/argument"
	"sar/core/internal/dtypes"
	"sar/core/internal/vec"
	"sar/core/internal/view"
)

// ReduceOp is what an all-reduce does.
type ReduceOp uint8

const (
	Sum ReduceOp = iota
	Min
	Max
	Prod
	Avg
	numReduceOps
)

var reduceNames = [numReduceOps]string{"sum", "min", "max", "prod", "avg"}

func (o ReduceOp) String() string {
	if o < numReduceOps {
		return reduceNames[o]
	}
	return fmt.Sprintf("reduction %d", uint8(o))
}

// reducer folds contributions of one dtype into an accumulator, which for the
// 16-bit types is float32: load the first rank's, fold the others' in order of
// ranks, store.
type reducer struct {
	size, accSize int
	load          func(acc, x []byte)
	fold          func(acc, x []byte)
	store         func(dst, acc []byte)
}

func newReducer(d dtypes.Type, op ReduceOp, world int) (*reducer, error) {
	if op >= numReduceOps {
		return nil, argument.Errorf("all-reduce with %s: it takes sum, min, max, prod and avg", op)
	}
	if op == Avg && (d.IsInteger() || d == dtypes.Bool) {
		return nil, argument.Errorf("all-reduce with avg of %s: an average of integers would be cut off; reduce with sum "+
			"and divide, or convert to float first", d)
	}
	switch d {
	case dtypes.Float64:
		return floatReducer(op, float64(world)), nil
	case dtypes.Float32:
		return floatReducer(op, float32(world)), nil
	case dtypes.Float16:
		return halfReducer(op, float32(world), fromHalf, toHalf), nil
	case dtypes.BFloat16:
		return halfReducer(op, float32(world), dtypes.FromBFloat16, dtypes.ToBFloat16), nil
	case dtypes.Int64:
		return plainReducer(fold(op, plus[int64])), nil
	case dtypes.Int32:
		return plainReducer(fold(op, plus[int32])), nil
	case dtypes.Uint8:
		return plainReducer(fold(op, plus[uint8])), nil
	case dtypes.Bool:
		return boolReducer(op), nil
	}
	return nil, argument.TypeErrorf("all-reduce of %s: it takes float64, float32, float16, bfloat16, int64, int32, uint8 "+
		"and bool", d)
}

// boolReducer reduces bools, of which any non-zero byte is true: sum, the maximum, is or, and
// prod, the minimum, is and.
func boolReducer(op ReduceOp) *reducer {
	extreme := Max
	if op == Min || op == Prod {
		extreme = Min
	}
	r := plainReducer(fold[uint8](extreme, nil))
	r.store = func(dst, acc []byte) {
		for i, b := range acc {
			dst[i] = min(b, 1)
		}
	}
	return r
}

type number interface {
	uint8 | int32 | int64 | float32 | float64
}

func plainReducer[T number](fold func(a, x []T)) *reducer {
	size := view.Size[T]()
	return &reducer{
		size: size, accSize: size,
		load:  func(acc, x []byte) { copy(acc, x) },
		fold:  func(acc, x []byte) { fold(view.Numbers[T](acc), view.Numbers[T](x)) },
		store: func(dst, acc []byte) { copy(dst, acc) },
	}
}

func floatReducer[T float32 | float64](op ReduceOp, world T) *reducer {
	r := plainReducer(fold(op, vec.Get[T]().Add))
	if op == Avg {
		r.store = func(dst, acc []byte) {
			out := view.Numbers[T](dst)
			for i, v := range view.Numbers[T](acc) {
				out[i] = v / world
			}
		}
	}
	return r
}

func halfReducer(op ReduceOp, world float32, from func(uint16) float32, to func(float32) uint16) *reducer {
	folded := fold(op, vec.Get[float32]().Add)
	var wide [256]float32
	return &reducer{
		size: 2, accSize: 4,
		load: func(acc, x []byte) {
			a := view.Numbers[float32](acc)
			for i, h := range view.Numbers[uint16](x) {
				a[i] = from(h)
			}
		},
		fold: func(acc, x []byte) {
			a, h := view.Numbers[float32](acc), view.Numbers[uint16](x)
			for len(h) > 0 {
				n := min(len(h), len(wide))
				for i, v := range h[:n] {
					wide[i] = from(v)
				}
				folded(a[:n], wide[:n])
				a, h = a[n:], h[n:]
			}
		},
		store: func(dst, acc []byte) {
			out := view.Numbers[uint16](dst)
			for i, v := range view.Numbers[float32](acc) {
				if op == Avg {
					v /= world
				}
				out[i] = to(v)
			}
		},
	}
}

// fold is a[i] = a[i] op x[i], where add is that of Sum. A NaN on either side stays, as in
// torch; integers wrap around.
func fold[T number](op ReduceOp, add func(a, x []T)) func(a, x []T) {
	switch op {
	case Min:
		return func(a, x []T) {
			for i, v := range x {
				if a[i] == a[i] && !(a[i] <= v) {
					a[i] = v
				}
			}
		}
	case Max:
		return func(a, x []T) {
			for i, v := range x {
				if a[i] == a[i] && !(a[i] >= v) {
					a[i] = v
				}
			}
		}
	case Prod:
		return func(a, x []T) {
			for i, v := range x {
				a[i] *= v
			}
		}
	}
	return add
}

func plus[T number](a, x []T) {
	for i, v := range x {
		a[i] += v
	}
}

// float16 as float32 and back, rounding to nearest even.

func fromHalf(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	// Subnormal or zero: frac · 2⁻²⁴ is exact in float32.
	v := float32(frac) * (1.0 / (1 << 24))
	return math.Float32frombits(math.Float32bits(v) | sign)
}

func toHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN stays NaN, quiet
		return sign | 0x7e00 | uint16(b>>13)&0x3ff
	case b >= 0x477ff000: // 65520 and above round to infinity
		return sign | 0x7c00
	case b < 0x38800000: // below 2⁻¹⁴: subnormal
		// Adding 0.5 puts the unit of float16's subnormals (2⁻²⁴) at the last
		// bit of a float32, so the addition rounds as we need.
		v := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(v)-0x3f000000)
	}
	b += 0xfff + (b>>13)&1
	return sign | uint16((b-0x38000000)>>13)
}
