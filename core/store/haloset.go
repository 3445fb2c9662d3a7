package store

import (
	"math/bits"

	"sar/core/mem"
)

// haloSet is a set of global ids that numbers its members in ascending order.
// It takes a quarter of a byte for every node of the graph.
type haloSet struct {
	words  mem.Array[uint64]
	before mem.Array[int64] // members before each word
}

func newHaloSet(n int64) (*haloSet, error) {
	words, err := mem.Make[uint64](mem.Scratch, int((n+63)/64))
	if err != nil {
		return nil, err
	}
	before, err := mem.Make[int64](mem.Scratch, int((n+63)/64))
	if err != nil {
		words.Free()
		return nil, err
	}
	return &haloSet{words, before}, nil
}

func (h *haloSet) free() {
	h.words.Free()
	h.before.Free()
}

func (h *haloSet) clear() { clear(h.words.Data) }

func (h *haloSet) add(id int64) { h.words.Data[id>>6] |= 1 << (id & 63) }

// number prepares rank and returns the number of members.
func (h *haloSet) number() int64 {
	var n int64
	for i, w := range h.words.Data {
		h.before.Data[i] = n
		n += int64(bits.OnesCount64(w))
	}
	return n
}

func (h *haloSet) has(id int64) bool { return h.words.Data[id>>6]>>(id&63)&1 != 0 }

// eachIn calls do with the members from lo to hi-1, in ascending order.
func (h *haloSet) eachIn(lo, hi int64, do func(id int64)) {
	for i := lo >> 6; i<<6 < hi; i++ {
		for w := h.words.Data[i]; w != 0; w &= w - 1 {
			if id := i<<6 + int64(bits.TrailingZeros64(w)); id >= lo && id < hi {
				do(id)
			}
		}
	}
}

func (h *haloSet) rank(id int64) int64 {
	below := h.words.Data[id>>6] & (1<<(id&63) - 1)
	return h.before.Data[id>>6] + int64(bits.OnesCount64(below))
}

func (h *haloSet) each(do func(id int64) error) error {
	for i, w := range h.words.Data {
		for ; w != 0; w &= w - 1 {
			if err := do(int64(i)<<6 + int64(bits.TrailingZeros64(w))); err != nil {
				return err
			}
		}
	}
	return nil
}
