package kernel

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bigRows rows of bigWidth float32 are 2^31 and 38 million elements, 8.7 GB.
const bigRows, bigWidth = 17_072_000, 128

// zeros maps n zeros that take memory where they are written, and only there.
func zeros(t *testing.T, n int) []float32 {
	b, err := unix.Mmap(-1, 0, n*4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Skipf("no %d bytes of addresses: %v", n*4, err)
	}
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), n)
}

// bigPicks are columns on either side of every 2^31 bytes and elements.
func bigPicks() []int32 {
	picks := []int32{0, 1}
	for _, element := range []int{1 << 31 / 4, 1 << 31} {
		row := int32(element / bigWidth)
		picks = append(picks, row-1, row, row+1)
	}
	return append(picks, bigRows-3, bigRows-2, bigRows-1)
}

// TestBigSource reads source rows whose offsets pass 2^31 elements, in every
// kernel that takes column numbers.
func TestBigSource(t *testing.T) {
	x := zeros(t, bigRows*bigWidth)
	picks := bigPicks()
	for k, j := range picks {
		row := x[int(j)*bigWidth:][:bigWidth]
		for c := range row {
			row[c] = float32(int(j)%1000) + float32(c)/128
		}
		if k > 0 && picks[k-1] > j {
			t.Fatalf("columns %d and %d do not ascend", picks[k-1], j)
		}
	}
	p := NewPool(2)
	a := CSR{Ptr: []int64{0, int64(len(picks)), int64(len(picks))}, Col: picks}
	want := make([]float32, 2*bigWidth)
	for _, j := range picks {
		for c := range bigWidth {
			want[c] += float32(int(j)%1000) + float32(c)/128
		}
	}
	check := func(what string, y []float32) {
		t.Helper()
		for c := range want {
			if y[c] != want[c] {
				t.Fatalf("%s: element %d is %v, want %v", what, c, y[c], want[c])
			}
		}
	}
	y := make([]float32, 2*bigWidth)
	SpMM(p, y, productOf(x, bigWidth, a, nil, 1, nil))
	check("SpMM", y)
	clear(y)
	cursor := []int64{0, int64(len(picks))}
	const cut = 1 << 31 / bigWidth
	SpMMWindow(p, y, productOf(x[:cut*bigWidth], bigWidth, a, nil, 1, nil), Window{&Cursor{Slot: cursor}, 0, cut, true})
	SpMMWindow(p, y, productOf(x[cut*bigWidth:], bigWidth, a, nil, 1, nil),
		Window{&Cursor{Slot: cursor}, cut, bigRows, false})
	check("SpMMWindow", y)

	ones, dots := make([]float32, 2*bigWidth), make([]float32, len(picks))
	for c := range ones {
		ones[c] = 1
	}
	SDDMM(p, dots, ones, productOf(x, bigWidth, a, nil, 1, nil))
	for k, j := range picks {
		if got, sum := dots[k], float32(int(j)%1000*bigWidth)+float32(bigWidth-1)/2; got != sum {
			t.Fatalf("SDDMM: column %d gives %v, want %v", j, got, sum)
		}
	}
	rows := make([]byte, len(picks)*bigWidth*4)
	source := unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*4)
	CopyRows(p, len(picks), RowsOf(rows, bigWidth*4, nil), RowsOf(source, bigWidth*4, picks))
	gathered := unsafe.Slice((*float32)(unsafe.Pointer(&rows[0])), len(rows)/4)
	AddRows(p, len(picks), RowsOf(x, bigWidth, picks), RowsOf(gathered, bigWidth, nil))
	for k, j := range picks {
		at, once := int(j)*bigWidth, float32(int(j)%1000)+5./128
		if gathered[k*bigWidth+5] != once || x[at+5] != 2*once {
			t.Fatalf("row %d: gathered %v, added %v, want %v and twice that", j, gathered[k*bigWidth+5], x[at+5], once)
		}
	}
}

// TestBigResult computes a result of more than 2^31 elements: SAR_BIG=1, and
// 11 GiB of memory that nobody uses.
func TestBigResult(t *testing.T) {
	if os.Getenv("SAR_BIG") == "" {
		t.Skip("takes 9 GB; SAR_BIG=1 runs it")
	}
	if free := availableGiB(t); free < 11 {
		t.Skipf("%d GiB are available", free)
	}
	const n, m = bigRows, 1000
	x, y := make([]float32, m*bigWidth), zeros(t, n*bigWidth)
	for j := range m {
		for c := range bigWidth {
			x[j*bigWidth+c] = float32(j) + float32(c)/128
		}
	}
	a := CSR{Ptr: make([]int64, n+1), Col: make([]int32, n)}
	for i := range n { // one slot a row, none in every tenth
		a.Ptr[i+1] = a.Ptr[i]
		if i%10 != 0 {
			a.Col[a.Ptr[i+1]] = int32(i % m)
			a.Ptr[i+1]++
		}
	}
	began := time.Now()
	SpMM(NewPool(2), y, productOf(x, bigWidth, a, nil, 1, nil))
	t.Logf("%d rows of %d columns: %.1f s", n, bigWidth, time.Since(began).Seconds())
	for i := range n {
		for _, c := range []int{0, 77, bigWidth - 1} {
			var want float32
			if i%10 != 0 {
				want = x[i%m*bigWidth+c]
			}
			if y[i*bigWidth+c] != want {
				t.Fatalf("row %d, column %d is %v, want %v", i, c, y[i*bigWidth+c], want)
			}
		}
	}
}

func availableGiB(t *testing.T) int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Skip("the system does not tell how much memory is available")
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kib >> 20
		}
	}
	return 0
}
