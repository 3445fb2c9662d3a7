package expr

import (
	"testing"

	"sar/core/graph"
	"sar/core/internal/view"
	"sar/core/kernel"
	"sar/core/mem"
)

func TestRanksOfAPeerAreBounded(t *testing.T) {
	program, err := Parse(`{"operands":[{"side":"u","shape":[1]}],"code":[],"result":0,"reduce":"max"}`)
	if err != nil {
		t.Fatal(err)
	}
	sums := &graph.Partial{
		Ptr: mem.Array[int32]{Data: []int32{0, 2, 3}}, Col: mem.Array[int32]{Data: []int32{0, 1, 1}},
	}
	src := make([]byte, 2*4+2)
	view.Numbers[float32](src)[1] = 2
	for _, c := range []struct {
		rank []byte
		fits bool
	}{{[]byte{2, 1}, true}, {[]byte{0, 1}, true}, {[]byte{1, 2}, false}, {[]byte{3, 1}, false}} {
		grad := make([]float32, 2)
		b := &Backward[float32]{
			run: &Run[float32]{Program: program, Pool: kernel.NewPool(1)},
			Own: &Sweep[float32]{targets: []rows[float32]{{data: grad, stride: 1}}},
		}
		copy(src[8:], c.rank)
		if err := b.AddPicked(sums, 0, 2, src); (err == nil) != c.fits {
			t.Errorf("ranks %v: %v", c.rank, err)
		} else if c.fits && grad[1] != 2 {
			t.Errorf("ranks %v: gradients %v", c.rank, grad)
		}
	}
}
