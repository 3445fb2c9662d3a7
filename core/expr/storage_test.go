package expr

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"sar/core/graph"
	"sar/core/internal/vec"
	"sar/core/internal/view"
	"sar/core/kernel"
)

// Programs whose operands are stored otherwise compute what they do with the same numbers in the element type, and
// gradients are of the element type.
func TestStorage(t *testing.T) {
	rel := benchRelation(t, 60, 900)
	for seed := range uint64(24) {
		w := &writer{rng: rand.New(rand.NewPCG(seed, 5)), heads: []int{1, 3, 4}[seed%3], d: []int{8, 16, 5}[seed%3]}
		if native := w.write(); len(w.text.Operands) <= MaxOperands {
			stored := strings.ReplaceAll(native, `"side":`, `"storage":"bfloat16","side":`)
			storage[float32](t, 1e-4, computeOf[float32](t, rel, native, false), computeOf[float32](t, rel, stored, true))
			storage[float64](t, 1e-11, computeOf[float64](t, rel, native, false), computeOf[float64](t, rel, stored, true))
		}
	}
	if _, err := Parse(`{"operands":[{"side":"u","shape":[1],"storage":"clay"}],"result":0,"reduce":"sum"}`); err == nil {
		t.Error("an unknown storage is taken")
	}
}

func storage[T Float](t *testing.T, tol float64, native, stored *Run[T]) {
	t.Helper()
	near := func(name string, x, y []T) {
		scale := 1.0
		for _, v := range y {
			scale = max(scale, math.Abs(float64(v)))
		}
		for i := range x {
			if d := math.Abs(float64(x[i] - y[i])); !(d <= tol*scale) {
				t.Fatalf("%s[%d] is %v stored, %v native", name, i, x[i], y[i])
			}
		}
	}
	near("out", stored.Out, native.Out)
	for i := range native.Grads {
		near("gradient", stored.Grads[i], native.Grads[i])
	}
}

// computeOf runs a program forward and backward on sixteenths, stored in bfloat16 or not.
func computeOf[T Float](t *testing.T, rel *graph.Relation, text string, stored bool) *Run[T] {
	p, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	rng := rand.New(rand.NewPCG(3, 1))
	fresh := func(n int) (x []T, raw []byte) {
		x = make([]T, n)
		for i := range x {
			v := int16(rng.IntN(64) - 32)
			x[i] = T(v) / 16
			raw = binary.NativeEndian.AppendUint16(raw, uint16(math.Float32bits(float32(x[i]))>>16))
		}
		return x, raw
	}
	r := &Run[T]{Program: p, Rel: rel, Pool: kernel.NewPool(2), Seeds: make([]uint64, p.Seeds)}
	for _, o := range p.Operands {
		x, raw := fresh(RowsOfSide(rel, o.Side) * o.Width)
		r.Grads = append(r.Grads, make([]T, len(x)))
		if stored {
			x = nil
		}
		r.Operands, r.Stored = append(r.Operands, x), append(r.Stored, raw)
	}
	for _, w := range p.Softmaxes() {
		r.Most, r.Inv = append(r.Most, make([]T, rel.NumDst*w)), append(r.Inv, make([]T, rel.NumDst*w))
	}
	r.Out = make([]T, rel.NumDst*p.Width())
	r.Winner = make([]int32, len(r.Out))
	grad, raw := fresh(len(r.Out))
	if r.Grad = grad; stored && p.TakesHalf() {
		r.Grad, r.HalfGrad = nil, view.Numbers[vec.BFloat16](raw)
	}
	forward(r)
	if err := backwardWhole(r); err != nil {
		t.Fatal(err)
	}
	return r
}
