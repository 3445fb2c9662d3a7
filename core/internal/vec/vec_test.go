package vec

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestChoose(t *testing.T) {
	was := Name()
	defer func() { _, _ = Choose(was) }()
	names := Available()
	if names[0] != "scalar" {
		t.Fatalf("available are %v, and scalar is not the first", names)
	}
	for _, name := range names {
		if got, err := Choose(name); err != nil || got != name || Name() != name {
			t.Errorf("Choose(%q) = %q, %v, and then Name() = %q", name, got, err, Name())
		}
	}
	if got, err := Choose(""); err != nil || got != names[len(names)-1] {
		t.Errorf("Choose(\"\") = %q, %v, want the best of %v", got, err, names)
	}
	if got, err := Choose("sse9"); err == nil || got != Name() || !strings.Contains(err.Error(), "sse9") {
		t.Errorf("Choose(\"sse9\") = %q, %v", got, err)
	}
	for _, name := range []string{"avx2", "avx512", "neon"} {
		if slices.Contains(names, name) {
			continue
		}
		if _, err := Choose(name); err == nil || !strings.Contains(err.Error(), "not available") {
			t.Errorf("Choose(%q) without it: %v", name, err)
		}
	}
}

// TestElementwise holds every table's loops over one row against the scalar
// ones, at every width that straddles a register, with guards around.
func TestElementwise(t *testing.T) {
	inTables(t, func(t *testing.T, ops *Ops[float32]) { elementwise(t, ops, 0x1p-23) },
		func(t *testing.T, ops *Ops[float64]) { elementwise(t, ops, 0x1p-52) })
}

func elementwise[T Float](t *testing.T, ops *Ops[T], eps float64) {
	const guard = 32
	rng := rand.New(rand.NewPCG(1, 1))
	reference := scalarOps[T]()
	for n := range 150 {
		x := room[T](n)
		start := make([]T, n+2*guard)
		for i := range x {
			x[i] = T(rng.NormFloat64())
		}
		for i := range start {
			start[i] = T(rng.NormFloat64())
		}
		for name, f := range map[string]func(o *Ops[T], y []T){
			"Axpy":  func(o *Ops[T], y []T) { o.Axpy(y, x, 1.7) },
			"Add":   func(o *Ops[T], y []T) { o.Add(y, x) },
			"Scale": func(o *Ops[T], y []T) { o.Scale(y, 1.7) },
		} {
			got, want := slices.Clone(start), slices.Clone(start)
			f(ops, got[guard:guard+n])
			f(&reference, want[guard:guard+n])
			for i := range want {
				// Only Axpy may round otherwise: once in place of twice.
				tolerance := 0.0
				if name == "Axpy" && i >= guard && i < guard+n {
					tolerance = eps * (math.Abs(1.7*float64(x[i-guard])) + math.Abs(float64(want[i])))
				}
				if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= tolerance) {
					t.Fatalf("%s of %d elements: element %d is %v, want %v", name, n, i-guard, got[i], want[i])
				}
			}
		}
	}
}

// normals draws as many standard normal numbers as it is asked for.
func normals[T Float](rng *rand.Rand) func(n int) []T {
	return func(n int) []T {
		x := room[T](n)
		for i := range x {
			x[i] = T(rng.NormFloat64())
		}
		return x
	}
}

// halves cuts numbers to what bfloat16 stores of them, in place, and returns that.
func halves[T Float](x []T) []BFloat16 {
	out := room[BFloat16](len(x))
	for i, v := range x {
		out[i] = BFloat16(math.Float32bits(float32(v)) >> 16)
		x[i] = wide[T](out[i])
	}
	return out
}

// rooms are memory, each with a page behind it that nobody may touch.
var rooms struct {
	memory [64][]byte
	next   int
}

// room is n numbers that end where a forbidden page begins: to read on is a fault. It lasts until
// len(rooms.memory) others were taken.
func room[T any](n int) []T {
	const size = 1 << 18
	var t T
	bytes := n * int(unsafe.Sizeof(t))
	if n == 0 || bytes > size {
		return make([]T, n)
	}
	rooms.next = (rooms.next + 1) % len(rooms.memory)
	memory := &rooms.memory[rooms.next]
	if *memory == nil {
		var err error
		if *memory, err = unix.Mmap(-1, 0, size+os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANON); err == nil {
			err = unix.Mprotect((*memory)[size:], unix.PROT_NONE)
		}
		if err != nil {
			panic(err)
		}
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&(*memory)[size-bytes])), n)
}

// inTables tests the loops of each table that the processor has.
func inTables(t *testing.T, f32 func(*testing.T, *Ops[float32]), f64 func(*testing.T, *Ops[float64])) {
	for _, table := range tables {
		if table.available() {
			t.Run(table.name+"/float32", func(t *testing.T) { f32(t, &table.f32) })
			t.Run(table.name+"/float64", func(t *testing.T) { f64(t, &table.f64) })
		}
	}
}
