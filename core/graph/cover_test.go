package graph

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// bipartite is a random graph with hubs on both sides and parallel edges: every source has an edge.
func bipartite(rng *rand.Rand, sources, destinations, edges int) (ptr, rows []int32) {
	lists := make([][]int32, sources)
	pick := func(n int) int {
		if rng.IntN(2) == 0 {
			return rng.IntN(min(n, 2))
		}
		return rng.IntN(n)
	}
	for i := range lists {
		lists[i] = append(lists[i], int32(pick(destinations)))
	}
	for range edges {
		i := pick(sources)
		lists[i] = append(lists[i], int32(pick(destinations)))
	}
	ptr = []int32{0}
	for _, list := range lists {
		rows = append(rows, list...)
		ptr = append(ptr, int32(len(rows)))
	}
	return ptr, rows
}

// costOf is that of rows of the sources that travel, and of a sum for each destination of the others.
func costOf(ptr, rows []int32, travels func(i int) bool, price Price) int {
	row, sum := price.capacities()
	sums, cost := map[int32]bool{}, 0
	for i := range len(ptr) - 1 {
		if travels(i) {
			cost += int(row)
			continue
		}
		for _, v := range rows[ptr[i]:ptr[i+1]] {
			sums[v] = true
		}
	}
	return cost + len(sums)*int(sum)
}

// matching is the size of a maximum matching with room for so many edges at each end, by one search an edge (Kuhn).
func matching(ptr, rows []int32, price Price) int {
	source, sum := price.capacities()
	taken, size := map[int32][]int{}, 0
	var find func(i int, seen map[int32]bool) bool
	find = func(i int, seen map[int32]bool) bool {
		for _, v := range rows[ptr[i]:ptr[i+1]] {
			if seen[v] {
				continue
			}
			seen[v] = true
			if len(taken[v]) < int(sum) {
				taken[v] = append(taken[v], i)
				return true
			}
			for k, w := range taken[v] {
				if find(w, seen) {
					taken[v][k] = i
					return true
				}
			}
		}
		return false
	}
	for range source {
		for i := range len(ptr) - 1 {
			if find(i, map[int32]bool{}) {
				size++
			}
		}
	}
	return size
}

// The cost of the rows and sums that travel is that of the cheapest cover, which is found by trying all sets of
// sources, or, where those are many, is the size of a maximum matching.
func TestCoverIsMinimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	less, most := 0, smallTree
	defer func() { smallTree = most }()
	for n := range 400 {
		smallTree = most * (n / 8 % 2)
		sources, destinations, edges := 1+rng.IntN(9), 1+rng.IntN(9), rng.IntN(30)
		if n%8 == 0 {
			sources, destinations, edges = 1+rng.IntN(200), 1+rng.IntN(200), rng.IntN(800)
		}
		ptr, rows := bipartite(rng, sources, destinations, edges)
		c, err := NewCoverer(destinations)
		if err != nil {
			t.Fatal(err)
		}
		to := make([]int32, sources)
		x := c.Arrange(ptr, rows, to)
		c.Free()
		for price := range NumPrices {
			row, sum := price.capacities()
			got := costOf(ptr, rows, func(i int) bool { return to[i] < x.Leading[price] }, price)
			all, want := sources*int(row), matching(ptr, rows, price)
			if sources < 10 {
				least := all
				for set := range 1 << sources {
					least = min(least, costOf(ptr, rows, func(i int) bool { return set>>i&1 != 0 }, price))
				}
				if want != least {
					t.Fatalf("%d sources: a matching of %d, and a cover of %d", sources, want, least)
				}
			}
			if want*CoverGain >= all*(CoverGain-1) {
				want = all
			} else {
				less++
			}
			if told := x.Leading[price]*row + x.Sums[price]*sum; got != want || int(told) != got {
				t.Fatalf("%d sources, price %d: %d, expected %d of %d", sources, price, got, want, all)
			}
		}
	}
	if less < 200 {
		t.Errorf("only %d covers are smaller than all rows", less)
	}
}

func TestArrange(t *testing.T) {
	class, to := []uint8{3, 0, 1, 3, 0, 2, 1}, make([]int32, 7)
	leading := arrange(class, to)
	if want := []int32{5, 0, 2, 6, 1, 4, 3}; !slices.Equal(to, want) {
		t.Errorf("places %v, expected %v", to, want)
	}
	if want := [NumPrices]int32{2, 4, 5}; leading != want {
		t.Errorf("leading %v, expected %v", leading, want)
	}
}

// Covers of a graph with hubs on both sides; what an edge takes.
func BenchmarkArrange(b *testing.B) {
	const n, edges = 20000, 200000
	rng := rand.New(rand.NewPCG(3, 4))
	pick := func() int32 { x := rng.Float64(); return int32(x * x * x * n) }
	lists := make([][]int32, n)
	for range edges {
		i := pick()
		lists[i] = append(lists[i], pick())
	}
	ptr, rows := []int32{0}, []int32(nil)
	for _, list := range lists {
		if len(list) > 0 {
			rows = append(rows, list...)
			ptr = append(ptr, int32(len(rows)))
		}
	}
	c, err := NewCoverer(n)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Free()
	to := make([]int32, len(ptr)-1)
	for b.Loop() {
		c.Arrange(ptr, rows, to)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*edges), "ns/edge")
}
