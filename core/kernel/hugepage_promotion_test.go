package kernel

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"sar/core/mem"
)

// TestRereads: the same content must be read often enough, other content at the
// same place begins anew, and of many arrays those read last are known.
func TestRereads(t *testing.T) {
	p := NewPool(1)
	b := make([]byte, 4096)
	b[100] = 1
	read := func(b []byte, times float64) bool { return p.rereads(b, times*float64(len(b))) }
	if read(b, 0.6*rereadFactor) || !read(b, 0.5*rereadFactor) {
		t.Fatal("not when that much was read")
	}
	if read(b, 2*rereadFactor) {
		t.Fatal("a second time")
	}
	at := (len(b) - 8) / rereadLooks * 3
	b[at]++
	if read(b, 0.6*rereadFactor) {
		t.Fatal("other content was taken for the same")
	}
	for i := range rereadKnown - 1 {
		read(make([]byte, 1024*(i+1)), 1)
	}
	if !read(b, 0.5*rereadFactor) {
		t.Fatal("forgotten too early")
	}
	for i := range rereadKnown {
		read(make([]byte, 1024*(i+1)), 1)
	}
	if len(p.known) != rereadKnown || read(b, 0.5*rereadFactor) {
		t.Fatal("more is known than should be")
	}
}

// TestCollapse reads the same rows until the pool asks for huge pages: results
// and rows stay what they are, rows changed afterwards are read as they are.
func TestCollapse(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 16 MiB many times, from one thread")
	}
	old := rereadLeast
	rereadLeast = 1 << 20
	defer func() { rereadLeast = old }()
	const n, width, degree = 4096, 1024, 30 // 16 MiB
	memory, err := mem.Make[float32](mem.Scratch, n*width+13)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Free()
	x := memory.Data[13:] // begins inside a page
	a := benchGraph(&testing.B{}, n, degree)
	for i := range x {
		x[i] = float32(i % 31)
	}
	p := NewPool(2)
	before := bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*4))
	first, y := make([]float32, n*width), make([]float32, n*width)
	SpMM(p, first, productOf(x, width, a, nil, 1, nil))
	for range rereadFactor/degree + 1 {
		SpMM(p, y, productOf(x, width, a, nil, 1, nil))
	}
	if len(p.known) != 1 || !p.known[0].settled {
		t.Fatalf("known: %+v", p.known)
	}
	if !bytes.Equal(before, unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*4)) {
		t.Fatal("the rows have changed")
	}
	for i := range y {
		if y[i] != first[i] {
			t.Fatalf("element %d is %v and was %v", i, y[i], first[i])
		}
	}
	t.Logf("%d KiB of the rows lie in huge pages",
		hugeKiB(t, uintptr(unsafe.Pointer(&x[0])), uintptr(unsafe.Pointer(&x[len(x)-1]))))
	for i := range x {
		x[i] = 1
	}
	SpMM(p, y, productOf(x, width, a, nil, 1, nil))
	for i := range y {
		if y[i] != degree {
			t.Fatalf("element %d is %v after the rows were changed, want %d", i, y[i], degree)
		}
	}
}

// hugeKiB is AnonHugePages of the mappings within [from, to], by the system's account.
func hugeKiB(t *testing.T, from, to uintptr) (sum int) {
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip("the system does not tell what its pages are")
	}
	inside := false
	for line := range strings.Lines(string(text)) {
		word := strings.Fields(line)
		if low, high, ok := strings.Cut(word[0], "-"); ok {
			lo, _ := strconv.ParseUint(low, 16, 64)
			hi, _ := strconv.ParseUint(high, 16, 64)
			inside = uintptr(hi) > from && uintptr(lo) <= to
		} else if inside && word[0] == "AnonHugePages:" {
			n, _ := strconv.Atoi(word[1])
			sum += n
		}
	}
	return sum
}
