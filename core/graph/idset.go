package graph

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"

	"sar/core/internal/bitset"
	"sar/core/mem"
)

// idSet is a set of ids within [lo, hi) that tells how many of its members are
// below an id. Dense sets are bits; where the range is far wider than the members
// are many, they are sorted instead (8 bytes a member).
type idSet struct {
	lo, hi int64
	bits   *bitset.Set
	sorted mem.Array[int64] // the other form; then bits is nil
	added  int
	n      int64
}

// ErrTwice is wrapped by the error for an id that two members of a set share.
var ErrTwice = errors.New("is there twice")

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
	} else {
		s.bits, err = bitset.New(span)
	}
	return s, err
}

// add puts an id of the range into the set. It reports false where the id is
// known to be there already; the sorted form finds that out in seal.
func (s *idSet) add(id int64) bool {
	if s.bits != nil {
		return s.bits.Add(id - s.lo)
	}
	s.sorted.Data[s.added] = id
	s.added++
	return true
}

// seal ends the adding. It fails where the sorted form holds an id twice.
func (s *idSet) seal() error {
	if s.bits != nil {
		s.n = s.bits.Seal()
		return nil
	}
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

// rank is the number of members below id, lo <= id <= hi.
func (s *idSet) rank(id int64) int64 {
	if s.bits != nil {
		return s.bits.Rank(id - s.lo)
	}
	members := s.sorted.Data[:s.added]
	return int64(sort.Search(len(members), func(i int) bool { return members[i] >= id }))
}

// all are the members, ascending.
func (s *idSet) all() iter.Seq[int64] {
	if s.bits == nil {
		return slices.Values(s.sorted.Data[:s.added])
	}
	return func(yield func(int64) bool) {
		for i := range s.bits.All() {
			if !yield(s.lo + i) {
				return
			}
		}
	}
}

func (s *idSet) free() {
	if s != nil {
		s.bits.Free()
		s.sorted.Free()
	}
}
