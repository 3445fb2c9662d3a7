package mem

import (
	"sync"
	"testing"
	"unsafe"

	"sar/core/internal/view"
)

// What is mapped is counted under its purpose, in whole pages, until it is freed.
func TestCounts(t *testing.T) {
	before, total := Stats(), Total()
	a, err := Make[float64](Scratch, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Data) != 1000 || uintptr(unsafe.Pointer(&a.Data[0]))%page != 0 {
		t.Errorf("%d elements at %p", len(a.Data), &a.Data[0])
	}
	for i, v := range a.Data {
		if v != 0 {
			t.Fatalf("element %d is %v", i, v)
		}
	}
	for p, u := range Stats() {
		want := before[p].Live
		if Purpose(p) == Scratch {
			want += 2 * page
		}
		if u.Live != want || u.Peak < u.Live {
			t.Errorf("%s: %+v, %d live expected", Purpose(p), u, want)
		}
	}
	if a.Bytes() != 2*page || Total().Live != total.Live+2*page {
		t.Errorf("mapping of %d, total %+v", a.Bytes(), Total())
	}
	a.Free()
	a.Free() // again is nothing
	if a.Data != nil || Stats()[Scratch].Live != before[Scratch].Live || Total().Live != total.Live {
		t.Errorf("after Free: %+v, total %+v", Stats()[Scratch], Total())
	}
}

// Peaks stay until they are reset, and then begin at what is live.
func TestPeaks(t *testing.T) {
	live := Stats()[Window].Live
	Count(Window, 5000)
	Count(Window, -4000)
	if u := Stats()[Window]; u.Live != live+1000 || u.Peak < live+5000 {
		t.Errorf("%+v", u)
	}
	ResetPeaks()
	if u := Stats()[Window]; u.Peak != live+1000 {
		t.Errorf("after the reset %+v", u)
	}
	Count(Window, -1000)
}

// The peak is the largest sum at one time, also where many count at once.
func TestPeakOfMany(t *testing.T) {
	ResetPeaks()
	live := Stats()[Scratch].Live
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 1000 {
				Count(Scratch, 3)
				Count(Scratch, -3)
			}
		}()
	}
	wg.Wait()
	if u := Stats()[Scratch]; u.Live != live || u.Peak < live+3 || u.Peak > live+24 {
		t.Errorf("%+v after 8 at once counted 3 each, %d before", u, live)
	}
}

func TestImpossibleSizes(t *testing.T) {
	for _, n := range []int{-1, 1 << 62} {
		if a, err := Make[int64](Structure, n); err == nil {
			a.Free()
			t.Errorf("%d elements were mapped", n)
		}
	}
	a, err := Make[int64](Structure, 0)
	if err != nil || a.Data != nil || a.Bytes() != 0 {
		t.Errorf("no elements: %v, %d bytes, %v", a.Data, a.Bytes(), err)
	}
	a.Free()
}

// What Go holds is counted when it is asked for, and in the total.
func TestRuntime(t *testing.T) {
	CountRuntime()
	before, total := Stats()[Runtime].Live, Total().Live
	if before < 1<<20 {
		t.Errorf("Go holds %d bytes", before)
	}
	held := make([]byte, 64<<20)
	for i := 0; i < len(held); i += page {
		held[i] = 1
	}
	if now := Stats()[Runtime].Live; now != before {
		t.Errorf("it moved by itself from %d to %d", before, now)
	}
	CountRuntime()
	if more := Stats()[Runtime].Live - before; more < 60<<20 || Total().Live-total != more {
		t.Errorf("64 MiB more on the heap count as %d, in all as %d", more, Total().Live-total)
	}
	held[0] = 2
}

// The kernel's figures follow what is touched; tensors are those of whoever counts them.
func TestProcess(t *testing.T) {
	before := Resident()
	if before.Live < 1<<20 || before.Peak < before.Live {
		t.Fatalf("resident %+v", before)
	}
	a, err := Make[uint8](Scratch, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(a.Data); i += page {
		a.Data[i] = 1
	}
	if now := Resident(); now.Live-before.Live < 50<<20 || now.Peak < now.Live {
		t.Errorf("64 MiB more: from %+v to %+v", before, now)
	}
	a.Free()
	if n := statusBytes([]byte("Name:\tx\nVmRSS:\t  12 kB\nVmHWM:"), "VmRSS:"); n != 12<<10 {
		t.Errorf("12 kB are %d", n)
	}
	for _, text := range []string{"", "VmRSS: 3 kB", "\nVmRSS:\n", "\nVmRSS: many kB\n"} {
		if n := statusBytes([]byte(text), "VmRSS:"); n != 0 {
			t.Errorf("%q gives %d", text, n)
		}
	}
}

// blocks lends blocks, and counts those that are out.
type blocks struct {
	out  int
	room []byte // a block, and what is free behind it
}

func (*blocks) Least() int { return 100 }

func (l *blocks) Lend(n int) []byte {
	if n > 1000 {
		return nil
	}
	l.out++
	return make([]byte, n)
}

func (l *blocks) LendBehind(b []byte, size int) []byte {
	if size > len(l.room) || &b[0] != &l.room[0] {
		return nil
	}
	l.out++
	return l.room[len(b):size]
}

func (l *blocks) Return([]byte) { l.out-- }

func TestWorkspace(t *testing.T) {
	if !lends {
		t.Skip("no lender is asked")
	}
	before, l := Stats()[Scratch].Live, &blocks{}
	LendFrom(l)
	defer LendFrom(nil)
	small, err := Workspace[float32](24)
	if err != nil || l.out != 0 {
		t.Fatalf("24 numbers are below what is lent: %v, %d blocks", err, l.out)
	}
	large, err := Workspace[float64](20)
	if err != nil || len(large.Data) != 20 || l.out != 1 {
		t.Fatalf("20 numbers: %v, %d blocks", err, l.out)
	}
	if got := Stats()[Scratch].Live - before; got != 4096+160 {
		t.Errorf("%d bytes are counted", got)
	}
	LendFrom(nil) // what is out goes back to who lent it
	large.Free()
	large.Free()
	small.Free()
	if got := Stats()[Scratch].Live - before; got != 0 || l.out != 0 {
		t.Errorf("%d bytes and %d blocks are out in the end", got, l.out)
	}
	LendFrom(l)
	if _, err := Workspace[float64](200); err == nil {
		t.Error("a lender without memory gave some")
	}
}

// Where there is no room behind an array, it is not widened; where there is, both are one.
func TestWidened(t *testing.T) {
	if !lends {
		t.Skip("no lender is asked")
	}
	before, l := Stats()[Scratch].Live, &blocks{room: make([]byte, 400)}
	x := view.Numbers[uint16](l.room)[:100]
	if wide, _ := Widened[float32](x); wide != nil {
		t.Fatal("widened without a lender")
	}
	LendFrom(l)
	defer LendFrom(nil)
	if wide, _ := Widened[float32](x[1:]); wide != nil {
		t.Fatal("widened, and another's memory is behind it")
	}
	wide, tail := Widened[float32](x)
	if len(wide) != 100 || l.out != 1 || Stats()[Scratch].Live-before != 200 {
		t.Fatalf("%d numbers, %d blocks out, %d bytes counted", len(wide), l.out, Stats()[Scratch].Live-before)
	}
	wide[99] = 1
	if view.Numbers[float32](l.room)[99] != 1 {
		t.Error("the numbers do not begin where the array does")
	}
	tail.Free()
	if l.out != 0 || Stats()[Scratch].Live != before {
		t.Errorf("%d blocks are out in the end", l.out)
	}
}
