package bitset

import (
	"math/rand/v2"
	"slices"
	"testing"

	"sar/core/mem"
)

// Members, counts and ranks are those of a sorted list without repetitions.
func TestSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	start := mem.Total().Live
	for _, n := range []int64{1, 63, 64, 65, 511, 512, 513, 5000} {
		s, err := New(n)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // Clear empties it
			s.Clear()
			var list []int64
			for range rng.Int64N(n + 1) {
				i := rng.Int64N(n)
				if s.Add(i) == slices.Contains(list, i) {
					t.Fatalf("%d is told to be new or not wrongly", i)
				}
				list = append(list, i)
			}
			slices.Sort(list)
			list = slices.Compact(list)
			if count := s.Seal(); count != int64(len(list)) {
				t.Fatalf("%d members, want %d", count, len(list))
			}
			if got := slices.Collect(s.All()); !slices.Equal(got, list) {
				t.Fatalf("members %v, want %v", got, list)
			}
			lo := rng.Int64N(n + 1)
			hi := lo + rng.Int64N(n+1-lo)
			from, _ := slices.BinarySearch(list, lo)
			to, _ := slices.BinarySearch(list, hi)
			if got := slices.Collect(s.In(lo, hi)); !slices.Equal(got, list[from:to]) {
				t.Fatalf("members from %d to %d: %v, want %v", lo, hi, got, list[from:to])
			}
			for i := range n + 1 {
				rank, is := slices.BinarySearch(list, i)
				if s.Rank(i) != int64(rank) || i < n && s.Has(i) != is {
					t.Fatalf("%d: rank %d and member %v, want %d and %v", i, s.Rank(i), s.Has(i), rank, is)
				}
			}
			for range s.All() {
				break // may stop
			}
		}
		s.Free()
		s.Free()
	}
	if live := mem.Total().Live; live != start {
		t.Fatalf("%d bytes left", live-start)
	}
}
