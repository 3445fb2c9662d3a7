package ascending

import "testing"

func TestRunEnd(t *testing.T) {
	col := []int32{0, 3, 3, 7, 8, 20, 21, 22, 40}
	for k := int64(0); k <= int64(len(col)); k++ {
		for end := int32(-1); end < 50; end++ {
			want := k
			for want < int64(len(col)) && col[want] < end {
				want++
			}
			if got := RunEnd(col, k, int64(len(col)), end); got != want {
				t.Fatalf("from %d below %d: %d, want %d", k, end, got, want)
			}
		}
	}
}

// Windows read every entry of two runs once.
func TestCursor(t *testing.T) {
	col, ptr := []int32{1, 4, 9, 2, 2}, []int64{0, 3, 5}
	for _, kept := range []bool{true, false} {
		c := Cursor[int64]{Slot: []int64{0, 3}}
		if kept {
			c.Next = []int32{1, 2}
		}
		var read []int32
		for end := int32(0); end <= 12; end += 3 {
			for i := range int32(2) {
				if c.Passes(i, end) {
					continue
				}
				k1 := RunEnd(col, c.Slot[i], ptr[i+1], end)
				read = append(read, col[c.Slot[i]:k1]...)
				c.Move(i, col, k1, ptr[i+1])
			}
		}
		if len(read) != len(col) || kept && !(c.Passes(0, 1<<30) && c.Passes(1, 1<<30)) {
			t.Fatalf("read %v, cursor %+v", read, c)
		}
	}
}
