package graph

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"sar/core/mem"
)

// idSet is a set of ids within [lo, hi) that tells how many of its members are
// below an id, which numbers the members in ascending order without sorting.
// Dense sets are a bitmap with a count every 512 ids (0.14 bytes per id of the
// range); where the range is far wider than the members are many, they are
// sorted instead (8 bytes a member).
type idSet struct {
	lo, hi int64
	words  mem.Array[uint64]
	before mem.Array[int64] // members before word 8*i, after seal
	sorted mem.Array[int64] // the other form; then words is empty
	added  int
	n      int64
}

// ErrTwice is wrapped by the error for an id that two members of a set share.
var ErrTwice = errors.New("is there twice")

const wordsPerCount = 8

// newIDSet makes a set for at most members ids in [lo, hi). members < 0: unknown,
// and then ids may be added more than once.
func newIDSet(lo, hi, members int64) (*idSet, error) {
	s := &idSet{lo: lo, hi: max(lo, hi)}
	span := s.hi - s.lo
	if span < 0 { // hi-lo overflowed
		return nil, fmt.Errorf("ids from %d to %d are too far apart to number", lo, hi)
	}
	var err error
	if members >= 0 && span/8 > 1<<16+8*members {
		s.sorted, err = mem.Make[int64](mem.Scratch, int(members))
		return s, err
	}
	if s.words, err = mem.Make[uint64](mem.Scratch, int(span/64+1)); err != nil {
		return nil, err
	}
	if s.before, err = mem.Make[int64](mem.Scratch, len(s.words.Data)/wordsPerCount+1); err != nil {
		s.free()
		return nil, err
	}
	return s, nil
}

// add puts an id of the range into the set. It reports false where the id is
// known to be there already; the sorted form finds that out in seal.
func (s *idSet) add(id int64) bool {
	if s.words.Data == nil {
		s.sorted.Data[s.added] = id
		s.added++
		return true
	}
	i := uint64(id - s.lo)
	w, bit := &s.words.Data[i>>6], uint64(1)<<(i&63)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	return true
}

// seal ends the adding. It fails where the sorted form holds an id twice.
func (s *idSet) seal() error {
	if s.words.Data == nil {
		members := s.sorted.Data[:s.added]
		slices.Sort(members)
		for i := 1; i < len(members); i++ {
			if members[i] == members[i-1] {
				return fmt.Errorf("id %d %w", members[i], ErrTwice)
			}
		}
		s.n = int64(s.added)
		return nil
	}
	for i, w := range s.words.Data {
		if i%wordsPerCount == 0 {
			s.before.Data[i/wordsPerCount] = s.n
		}
		s.n += int64(bits.OnesCount64(w))
	}
	return nil
}

// rank is the number of members below id, lo <= id <= hi.
func (s *idSet) rank(id int64) int64 {
	if s.words.Data == nil {
		members := s.sorted.Data[:s.added]
		return int64(sort.Search(len(members), func(i int) bool { return members[i] >= id }))
	}
	i := uint64(id - s.lo)
	w := i >> 6
	n := s.before.Data[w/wordsPerCount]
	for k := w &^ (wordsPerCount - 1); k < w; k++ {
		n += int64(bits.OnesCount64(s.words.Data[k]))
	}
	return n + int64(bits.OnesCount64(s.words.Data[w]&(1<<(i&63)-1)))
}

// each visits the members in ascending order.
func (s *idSet) each(visit func(id int64)) {
	if s.words.Data == nil {
		for _, id := range s.sorted.Data[:s.added] {
			visit(id)
		}
		return
	}
	for i, w := range s.words.Data {
		for ; w != 0; w &= w - 1 {
			visit(s.lo + int64(i)*64 + int64(bits.TrailingZeros64(w)))
		}
	}
}

// appendTo appends the members in ascending order.
func (s *idSet) appendTo(ids []int64) []int64 {
	s.each(func(id int64) { ids = append(ids, id) })
	return ids
}

func (s *idSet) free() {
	if s != nil {
		s.words.Free()
		s.before.Free()
		s.sorted.Free()
	}
}
