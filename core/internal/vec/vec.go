// Package vec holds the innermost loops of the engine, over float32 and
// float64: a scalar reference that every build has, and SIMD versions of the
// same loops (builds with GOEXPERIMENT=simd), for AVX2 and NEON from one source
// (lanes.go), and for AVX-512 a few more. One table is in use at a time, chosen when
// the program starts.
//
// Every loop adds in the order its comment states, so within one table the
// result does not depend on how a caller cuts its work. Sums over rows have the
// same bits in all tables. Products of two rows do not: a table with n lanes
// adds every n-th product, fused (FMA), and then the lanes, n being 4 or 2
// (float32, float64) with NEON, 8 or 4 with AVX2, 16 with AVX-512 in rows of
// bfloat16 that it has loops for, and in float64 what is left of a row at last,
// one after the other; the scalar one adds one after the other and fuses
// nothing. Exponentials and what is made of them differ from the scalar ones
// within the stated bounds. Weighted sums round c*x before they add, everywhere:
// fused, the compiler needs a copy of every sum for every slot.
package vec

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"
)

// Float lists the element types.
type Float interface{ float32 | float64 }

// Gather is the arguments of Ops.GatherSum and Ops.GatherDotHeads: a run of source
// rows, picked out of X by Col, and one row Y.
type Gather[T Float] struct {
	Y      []T        // [d] row that is added to (GatherSum) or multiplied with (GatherDotHeads)
	X      []T        // source rows; row r has its d columns at X[r*Stride : r*Stride+d]
	Half   []BFloat16 // in place of X, for loops whose names begin with Half
	Stride int        // elements from one source row to the next
	Col    []int32    // [n] source rows, Col[k]-Base
	Base   int32
	C      []T  // [n] coefficients; nil means 1
	Scale  []T  // in place of C, for GatherSum and HalfSum: those of source rows, Scale[Col[k]-Base]
	First  bool // Y starts from zero and is not read
	Out    []T  // [n, heads] results of GatherDotHeads
	D      int  // columns of a row of GatherSums
}

// Run is one row of GatherSums: elements [Y, Y+D) of its results are the sum over
// slots [From, To) of Col, with coefficients from C[At] on.
type Run struct {
	Y            int
	From, To, At int64
}

// Ops is the loops of one table for one element type.
type Ops[T Float] struct {
	// GatherSum: y[j] = (first ? 0 : y[j]); for k ascending: y[j] += c[k] * x[col[k]-base, j]
	GatherSum func(g *Gather[T])
	// GatherSums: GatherSum of each of many rows.
	GatherSums func(g *Gather[T], runs []Run)
	// HalfSum and HalfSums are GatherSum and GatherSums of the rows of Half. The bits are those of the same rows
	// as numbers of T.
	HalfSum  func(g *Gather[T])
	HalfSums func(g *Gather[T], runs []Run)
	// HalfSumHeads is GatherSumHeads of them, whatever d.
	HalfSumHeads func(g *Gather[T], heads int)
	// HalfDotHeads and HalfDotSums are GatherDotHeads and DotSums of them, d at least HeadLanes. Sums have the bits of
	// HalfSumHeads; of products a lane adds those of two columns that lie side by side, one after the other.
	HalfDotHeads func(g *Gather[T], heads int)
	HalfDotSums  func(g *Gather[T], w []T, heads int)
	// HalfRows is Rows of numbers that x has in bfloat16.
	HalfRows func(z []T, x []BFloat16, stride int, base int32, index []int32, w int)
	// Narrow: z[j] = x[j] to the nearest that bfloat16 has, of two as near the even one; NaN is 0x7fc0
	Narrow func(z []BFloat16, x []T)
	// GatherSumHeads: GatherSum with a coefficient for each of heads runs of d columns,
	// c [n, heads]: y[h*d+j] += c[k*heads+h] * x[col[k]-base, h*d+j]. d must be a
	// multiple of HeadLanes. The bits are those of GatherSum of each head.
	GatherSumHeads func(g *Gather[T], heads int)
	// GatherDotHeads: products of each of heads runs of d columns:
	// out[k*heads+h] = Σ_j x[col[k]-base, h*d+j] * y[h*d+j]. The bits are those of DotPairs.
	GatherDotHeads func(g *Gather[T], heads int)
	// DotSums is GatherDotHeads with the row w, and GatherSumHeads whatever d, in one pass over
	// the rows; the bits are theirs.
	DotSums func(g *Gather[T], w []T, heads int)
	// Axpy: y[j] += c * x[j], for j < len(y)
	Axpy func(y, x []T, c T)
	// Add: y[j] += x[j], for j < len(y)
	Add func(y, x []T)
	// Scale: y[j] *= c
	Scale func(y []T, c T)

	// Plus: z[j] = x[j] + y[j], for j < len(z), and so on. z may be x or y.
	Plus, Minus, Times, Over func(z, x, y []T)
	// Leaky: z[j] = x[j] > 0 ? y[j] : c * y[j]. With y = x that is leaky ReLU, with
	// y the gradient of its result its gradient.
	Leaky func(z, x, y []T, c T)
	// Gate: z[j] = x[j] <= 0 ? 0 : y[j]. ReLU with y = x, else its gradient.
	Gate func(z, x, y []T)
	// Win: where x[j] > best[j] (least: <), or they are equal and edge < won[j]:
	// best[j], won[j] = x[j], edge. NaN never wins.
	Win func(best, x []T, won []int32, edge int32, least bool)
	// Pick: z[j] = won[j] == edge ? x[j] : 0
	Pick func(z, x []T, won []int32, edge int32)
	// TimesEach: z[g*d+j] = x[g*d+j] * c[g], for g < len(c), j < d
	TimesEach func(z, x, c []T, d int)
	// DotPairs: out[k*heads+h] = Σ_j x[ix[k]-baseX, h*d+j] * y[iy[k]-baseY, h*d+j]
	DotPairs func(p *Pairs[T])
	// LeakyDots, with f(s) = max(s, alpha*s), 0 ≤ alpha ≤ 1, and d a multiple of HeadLanes:
	// out[k*heads+h] = Σ_j f(x[col[k]-base, h*d+j] + w[h*d+j]) * a[h*d+j]
	LeakyDots func(g *Gather[T], w, a []T, heads int, alpha T)
	// LeakySums, with f' its slope, 1 or alpha: for k ascending:
	// y[h*d+j] += c[k*heads+h] * a[h*d+j] * f'(x[col[k]-base, h*d+j] + w[h*d+j]), or without a
	// y[h*d+j] += c[k*heads+h] * f(x[col[k]-base, h*d+j] + w[h*d+j])
	LeakySums func(g *Gather[T], w, a []T, heads int, alpha T)
	// LeakyBoth is LeakySums with a, and LeakySums without it into values, in one pass over the
	// rows; the bits are theirs.
	LeakyBoth func(g *Gather[T], w, a, values []T, heads int, alpha T)
	// Rows: z[k*w+j] = x[(index[k]-base)*stride+j], for j < w
	Rows func(z, x []T, stride int, base int32, index []int32, w int)
	// ScatterAdd: y[index[k]*w+j] += x[k*w+j], for j < w, for k ascending
	ScatterAdd func(y, x []T, index []int32, w int)
	// SumRows and MostRows, of rows of len(y): y[h] += x[k*len(y)+h], y[h] = max(y[h], x[k*len(y)+h]),
	// for k ascending. Where one is NaN, the greatest may be any of them.
	SumRows, MostRows func(y, x []T)
	// LessRow: z[k*len(y)+h] = x[k*len(y)+h] - y[h]. z may be x.
	LessRow func(z, y, x []T)
	// ScatterSum, with d = len(x)/heads: y[row[k]*stride + h*d+j] += c[k*strideC+h] * x[h*d+j], for k ascending
	ScatterSum func(s *Scatter[T])
	// ScatterSlopes, with f' as in LeakySums and d a multiple of HeadLanes:
	// y[row[k]*stride + h*d+j] += c[k*strideC+h] * a[h*d+j] * f'(w[row[k]*strideW + h*d+j] + x[h*d+j])
	ScatterSlopes func(s *Scatter[T])
	// Sigmoid, Tanh, Softplus (x itself above 20) and Log: z[j] = f(x[j]), within 4 units in
	// the last place. z must not be x.
	Sigmoid, Tanh, Softplus, Log func(z, x []T)
	// ELU: z[j] = x[j] > 0 ? x[j] : c * (e^x[j] - 1), the latter within 4 units for c = 1.
	// z must not be x.
	ELU func(z, x []T, c T)
	// Exp: y[j] = e^x[j], within 2 units in the last place
	Exp func(y, x []T)
}

// Pairs is the arguments of Ops.DotPairs: pairs of rows, picked out of X and Y.
type Pairs[T Float] struct {
	Out              []T // [n, Heads]
	X, Y             []T // row r begins at X[r*StrideX]
	StrideX, StrideY int
	IX, IY           []int32 // [n] rows, IX[k]-BaseX of X
	BaseX, BaseY     int32
	Heads, D         int
}

// pairs are the source rows, each with the one row Y.
func (g *Gather[T]) pairs(heads int) *Pairs[T] {
	return &Pairs[T]{Out: g.Out, X: g.X, Y: g.Y, StrideX: g.Stride, IX: g.Col, IY: g.Col, BaseX: g.Base, BaseY: g.Base,
		Heads: heads, D: len(g.Y) / max(1, heads)}
}

// Scatter is the arguments of Ops.ScatterSum and Ops.ScatterSlopes: one row X, and rows of Y that
// multiples of it are added to.
type Scatter[T Float] struct {
	Y       []T // row r begins at Y[r*Stride]
	Stride  int
	Row     []int32 // [n] rows of Y; one may occur several times
	X       []T     // [Heads, d]
	C       []T     // coefficients, those of k beginning at C[k*StrideC]
	Heads   int
	StrideC int

	// Of ScatterSlopes:
	A       []T // [Heads, d]
	W       []T // row r begins at W[r*StrideW]
	StrideW int
	Alpha   T
}

// HeadBytes is the multiple of bytes that heads have in loops which say so: two of the widest registers, so that two
// neighbours share a coefficient.
const HeadBytes = 64

// HeadLanes is HeadBytes in elements.
func HeadLanes[T Float]() int {
	var t T
	return HeadBytes / int(unsafe.Sizeof(t))
}

// table is one set of loops and what it needs of the CPU.
type table struct {
	name      string
	available func() bool
	f32       Ops[float32]
	f64       Ops[float64]

	columns32 ColumnOps[float32]
	columns64 ColumnOps[float64]
}

// tables is in order of preference, the best last.
var tables = []*table{
	{
		"scalar", func() bool { return true }, scalarOps[float32](), scalarOps[float64](),
		scalarColumns[float32](), scalarColumns[float64](),
	},
}

var current atomic.Pointer[table]

func init() {
	tables = append(tables, simdTables()...)
	// A bad value leaves the best table in place here; whoever starts the
	// engine calls Choose again and reports the error.
	if _, err := Choose(os.Getenv("SAR_SIMD")); err != nil {
		_, _ = Choose("")
	}
}

// Choose puts a table into use: the one of that name, or for "" the best that
// this CPU and build have. It returns the name of the table in use. On error
// nothing changes. Not for use while kernels run, results would mix tables.
func Choose(want string) (string, error) {
	names, pick := Available(), want
	if want == "" {
		pick = names[len(names)-1]
	}
	if !slices.Contains(names, pick) {
		switch want {
		case "scalar", "avx2", "avx512", "neon":
		default:
			known := "use scalar, avx2, avx512 or neon, or leave it unset"
			return Name(), fmt.Errorf("SAR_SIMD=%q is not a SIMD path: %s", want, known)
		}
		return Name(), fmt.Errorf("SAR_SIMD=%s is not available on this CPU or in this build: use %s, or leave it unset",
			want, strings.Join(names, " or "))
	}
	current.Store(tables[slices.IndexFunc(tables, func(t *table) bool { return t.name == pick })])
	return pick, nil
}

// Name is the name of the table in use: "scalar", "avx2", "avx512" or "neon".
func Name() string {
	if t := current.Load(); t != nil {
		return t.name
	}
	return ""
}

// Available lists the tables of this CPU and build, the best last.
func Available() []string {
	var names []string
	for _, t := range tables {
		if t.available() {
			names = append(names, t.name)
		}
	}
	return names
}

// Get returns the loops in use for T.
func Get[T Float]() *Ops[T] {
	t := current.Load()
	if ops, ok := any(&t.f32).(*Ops[T]); ok {
		return ops
	}
	return any(&t.f64).(*Ops[T])
}
