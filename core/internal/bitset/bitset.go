// Package bitset holds sets of numbers below a bound, a bit each.
package bitset

import (
	"iter"
	"math/bits"

	"sar/core/mem"
)

// Set is a set of numbers from 0 to n-1 that numbers its members in ascending order,
// without sorting them. It takes 0.14 bytes for each number that may be in it.
type Set struct {
	words  mem.Array[uint64]
	before mem.Array[int64] // members before word wordsPerCount*i, after Seal
}

const wordsPerCount = 8

// New makes an empty set of numbers below n. Free it.
func New(n int64) (*Set, error) {
	words, err := mem.Make[uint64](mem.Scratch, int(n/64+1))
	if err != nil {
		return nil, err
	}
	before, err := mem.Make[int64](mem.Scratch, len(words.Data)/wordsPerCount+1)
	if err != nil {
		words.Free()
		return nil, err
	}
	return &Set{words, before}, nil
}

// Add puts i into the set, and tells whether it was not there.
func (s *Set) Add(i int64) bool {
	w, bit := &s.words.Data[i>>6], uint64(1)<<(i&63)
	added := *w&bit == 0
	*w |= bit
	return added
}

// Has tells whether i is a member.
func (s *Set) Has(i int64) bool { return s.words.Data[i>>6]>>(i&63)&1 != 0 }

// Clear empties the set.
func (s *Set) Clear() { clear(s.words.Data) }

// Seal counts the members, and prepares Rank.
func (s *Set) Seal() (n int64) {
	for i, w := range s.words.Data {
		if i%wordsPerCount == 0 {
			s.before.Data[i/wordsPerCount] = n
		}
		n += int64(bits.OnesCount64(w))
	}
	return n
}

// Rank is the number of members below i, which may be n, as they were at Seal.
func (s *Set) Rank(i int64) int64 {
	last := i >> 6
	n := s.before.Data[last/wordsPerCount]
	for _, w := range s.words.Data[last&^(wordsPerCount-1) : last] {
		n += int64(bits.OnesCount64(w))
	}
	return n + int64(bits.OnesCount64(s.words.Data[last]&(1<<(i&63)-1)))
}

// All are the members, ascending.
func (s *Set) All() iter.Seq[int64] { return s.In(0, int64(len(s.words.Data))<<6) }

// In are the members from lo to hi-1, ascending.
func (s *Set) In(lo, hi int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for i := lo >> 6; i<<6 < hi; i++ {
			for w := s.words.Data[i]; w != 0; w &= w - 1 {
				if x := i<<6 + int64(bits.TrailingZeros64(w)); x >= lo && x < hi && !yield(x) {
					return
				}
			}
		}
	}
}

// Free releases a set; nil is one that holds nothing.
func (s *Set) Free() {
	if s != nil {
		s.words.Free()
		s.before.Free()
	}
}
