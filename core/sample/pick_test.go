package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// chiSquare compares counts with what is expected of them; the result is about
// standard normal if they are drawn so.
func chiSquare(counts []int, expected []float64) float64 {
	x, n := 0.0, 0
	for i, c := range counts {
		if expected[i] > 0 {
			d := float64(c) - expected[i]
			x += d * d / expected[i]
			n++
		} else if c > 0 {
			return math.Inf(1)
		}
	}
	df := float64(n - 1)
	// Wilson and Hilferty
	return (math.Cbrt(x/df) - (1 - 2/(9*df))) / math.Sqrt(2/(9*df))
}

// draws makes one draw per node number.
func draws(n, k int, pick func(p *picker, s *stream, out []int32)) [][]int32 {
	var p picker
	all := make([][]int32, n)
	for i := range all {
		s := newStream(LayerKey(7, 1, 0), int64(i))
		all[i] = make([]int32, k)
		pick(&p, &s, all[i])
	}
	return all
}

func TestUniformDrawsAllSubsetsAlike(t *testing.T) {
	for _, c := range []struct{ d, k int }{{5, 2}, {6, 3}, {7, 5}} {
		subsets := map[uint64]int{}
		const n = 60000
		for _, out := range draws(n, c.k, func(p *picker, s *stream, out []int32) { p.uniform(s, c.d, out) }) {
			var set uint64
			for _, slot := range out {
				if slot < 0 || int(slot) >= c.d || set>>slot&1 != 0 {
					t.Fatalf("%d of %d: %v", c.k, c.d, out)
				}
				set |= 1 << slot
			}
			subsets[set]++
		}
		var counts []int
		var expected []float64
		all := binomial(c.d, c.k)
		for _, n := range subsets {
			counts = append(counts, n)
		}
		for range counts {
			expected = append(expected, float64(n)/float64(all))
		}
		if z := chiSquare(counts, expected); len(subsets) != all || math.Abs(z) > 4 {
			t.Errorf("%d of %d: %d subsets of %d, chi-square %.1f deviations off", c.k, c.d, len(subsets), all, z)
		}
	}
}

func binomial(n, k int) int {
	b := 1
	for i := range k {
		b = b * (n - i) / (i + 1)
	}
	return b
}

func TestUniformOfLongRows(t *testing.T) {
	for _, c := range []struct{ d, k int }{{64, 20}, {65, 20}, {65, 64}, {300, 7}, {1000, 990}} {
		counts, expected := make([]int, c.d), make([]float64, c.d)
		n := 400000 / c.k
		for _, out := range draws(n, c.k, func(p *picker, s *stream, out []int32) { p.uniform(s, c.d, out) }) {
			sorted := slices.Clone(out)
			slices.Sort(sorted)
			if len(slices.Compact(sorted)) != c.k || out[0] < 0 {
				t.Fatalf("%d of %d: %v", c.k, c.d, out)
			}
			for _, slot := range out {
				counts[slot]++
			}
		}
		for i := range expected {
			expected[i] = float64(n*c.k) / float64(c.d)
		}
		// without replacement counts vary less than independent ones, by (d-k)/(d-1)
		if z := chiSquare(counts, expected); z > 4 {
			t.Errorf("%d of %d: chi-square %.1f deviations off", c.k, c.d, z)
		}
	}
}

func TestRepeatedDrawsEverySlotAlike(t *testing.T) {
	counts, expected := make([]int, 9), make([]float64, 9)
	for _, out := range draws(20000, 4, func(p *picker, s *stream, out []int32) { p.repeated(s, 9, out) }) {
		for _, slot := range out {
			counts[slot]++
		}
	}
	for i := range expected {
		expected[i] = 80000. / 9
	}
	if z := chiSquare(counts, expected); math.Abs(z) > 4 {
		t.Errorf("chi-square %.1f deviations off: %v", z, counts)
	}
}

// inclusion is the probability that each slot is among k drawn one after the
// other in proportion to the weights left, by enumeration.
func inclusion(w []float32, k int) []float64 {
	p := make([]float64, len(w))
	var walk func(taken uint, left int, prob float64)
	walk = func(taken uint, left int, prob float64) {
		sum := 0.0
		for i, x := range w {
			if taken>>i&1 == 0 {
				sum += float64(x)
			}
		}
		if left == 0 {
			for i := range w {
				if taken>>i&1 != 0 {
					p[i] += prob
				}
			}
			return
		}
		for i, x := range w {
			if taken>>i&1 == 0 && x > 0 {
				walk(taken|1<<i, left-1, prob*float64(x)/sum)
			}
		}
	}
	walk(0, k, 1)
	return p
}

func TestWeighted(t *testing.T) {
	w := []float32{0.5, 0, 3, 1, 1e-3, 7, 2, 0}
	for k := 1; k <= 5; k++ {
		counts, expected := make([]int, len(w)), inclusion(w, k)
		const n = 50000
		for _, out := range draws(n, k, func(p *picker, s *stream, out []int32) { p.weighted(s, w, out) }) {
			if !slices.IsSorted(out) || len(slices.Compact(slices.Clone(out))) != k {
				t.Fatalf("drew %v", out)
			}
			for _, slot := range out {
				counts[slot]++
			}
		}
		for i, p := range expected {
			sd := math.Sqrt(n * p * (1 - p))
			if math.Abs(float64(counts[i])-n*p) > 5*sd+1e-9 {
				t.Errorf("%d of them: slot %d was drawn %d times, expected %.0f ± %.0f", k, i, counts[i], n*p, sd)
			}
		}
	}
}

func TestWeightedRepeated(t *testing.T) {
	w := []float32{0, 0.5, 0, 3, 1, 1e-3, 7, 2, 0}
	counts, expected := make([]int, len(w)), make([]float64, len(w))
	const n, k = 50000, 4
	for _, out := range draws(n, k, func(p *picker, s *stream, out []int32) { p.weightedRepeated(s, w, out) }) {
		for _, slot := range out {
			counts[slot]++
		}
	}
	for i, x := range w {
		expected[i] = n * k * float64(x) / 13.501
	}
	if z := chiSquare(counts, expected); math.Abs(z) > 4 {
		t.Errorf("chi-square %.1f deviations off: %v, expected %.0f", z, counts, expected)
	}
	if got := lastPositive(w, len(w)); got != 7 {
		t.Errorf("past the end: slot %d, expected 7", got)
	}
}

// TestStreams looks for what neighbouring nodes, layers and batches have in common.
func TestStreams(t *testing.T) {
	seen := map[uint64]bool{}
	n := 0
	for batch := range uint64(8) {
		for layer := range 4 {
			for rel := range 3 {
				for node := range int64(100) {
					s := newStream(LayerKey(batch, layer, rel), node)
					for range 3 {
						seen[s.next()] = true
						n++
					}
				}
			}
		}
	}
	if len(seen) != n {
		t.Errorf("%d numbers of %d are there twice", n-len(seen), n)
	}
	var bits [64]int
	for node := range int64(1 << 14) {
		s := newStream(LayerKey(1, 0, 0), node)
		for x, i := s.next(), 0; i < 64; i++ {
			bits[i] += int(x >> i & 1)
		}
	}
	for i, c := range bits {
		if math.Abs(float64(c)-1<<13) > 5*64 {
			t.Errorf("bit %d is set in %d of %d first numbers", i, c, 1<<14)
		}
	}
}

func TestTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	space := Space{0, 100, 100, 40000}
	for try := range 6 {
		rank := try % 3
		table := newTable(space, rank, []uint64{0, 1 << 20}[try/3])
		if (table.all != nil) != (try >= 3) {
			t.Fatal("not the kind of table that was asked for")
		}
		for range 3 {
			table.reset()
			number := map[int64]int32{}
			for range 30000 {
				id := int64(rng.IntN(40000))
				want, ok := number[id]
				if !ok && table.find(id) != -1 {
					t.Fatalf("rank %d: node %d was not met, and is found", rank, id)
				}
				if !ok {
					want = int32(len(number))
					number[id] = want
				}
				if got := table.number(id); got != want || table.Nodes[got] != id {
					t.Fatalf("rank %d: node %d has number %d, expected %d", rank, id, got, want)
				}
			}
			if len(table.Nodes) != len(number) {
				t.Fatalf("%d nodes, expected %d", len(table.Nodes), len(number))
			}
			some := []int64{7, 39999, 7, 5000, 40000}
			want := []int64{int64(table.number(7)), int64(table.number(39999)), int64(table.number(7)),
				int64(table.number(5000)), 40000}
			if k := table.numbers(some); k != 4 || !slices.Equal(some, want) {
				t.Fatalf("rank %d: numbers %v, expected %v; %d is no node", rank, some, want, k)
			}
		}
	}
	for id, want := range map[int64]int{0: 0, 99: 0, 100: 2, 39999: 2} {
		if got := space.Owner(id); got != want {
			t.Errorf("the owner of %d is %d, expected %d", id, got, want)
		}
	}
}

func TestSlabsAreUsedAgain(t *testing.T) {
	pool := &Slabs{}
	var last *byte
	for round := range 5 {
		a := arena{pool: pool}
		b, err := a.bytes(10 << 20)
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.ints(5)
		if err != nil || len(c) != 5 {
			t.Fatal(c, err)
		}
		if round > 0 && last != &b[0] {
			t.Errorf("round %d got other memory", round)
		}
		last = &b[0]
		a.free()
	}
	if n := len(pool.free); n > 2 {
		t.Errorf("%d slabs are kept", n)
	}
	pool.Close()
}
