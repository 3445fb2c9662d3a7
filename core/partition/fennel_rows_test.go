package partition

import (
	"math/rand/v2"
	"testing"
)

// rmat has few nodes with many edges and many with few, as networks of people do (Chakrabarti, Zhan and
// Faloutsos, SDM 2004).
func rmat(rng *rand.Rand, scale, pairs int) *list {
	l := &list{n: 1 << scale}
	number := rng.Perm(1 << scale)
	for range pairs {
		u, v := 0, 0
		for range scale {
			switch x := rng.IntN(100); {
			case x < 57:
				u, v = 2*u, 2*v
			case x < 76:
				u, v = 2*u, 2*v+1
			case x < 95:
				u, v = 2*u+1, 2*v
			default:
				u, v = 2*u+1, 2*v+1
			}
		}
		l.src, l.dst = append(l.src, int64(number[u]), int64(number[v])), append(l.dst, int64(number[v]), int64(number[u]))
	}
	return l
}

func TestFennelByRows(t *testing.T) {
	for _, parts := range []int{4, 8} {
		l := rmat(rand.New(rand.NewPCG(uint64(parts), 9)), 13, 130_000)
		found := map[bool]int64{}
		for _, byRows := range []bool{false, true} {
			f := Fennel{Parts: parts, Imbalance: 0.03, Rows: byRows}
			a := unassigned(l.n)
			assign(t, f, a, l)
			checkBalance(t, f, a, nil, 0, int32(parts))
			found[byRows] = travel(sets(l), a)
		}
		t.Logf("%d parts: %d rows by edges, %d by rows", parts, found[false], found[true])
		if 10*found[true] > 9*found[false] {
			t.Errorf("%d parts: %d rows travel, %d where edges count", parts, found[true], found[false])
		}
	}
}

// TestReaders moves nodes: none and one are what they say, and several are known to be several
// as soon as the neighbours have been counted.
func TestReaders(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const n, parts = 60, 70
	neighbours := sets(both(randomList(rng, n, 400)))
	r, err := newReaders(n, parts)
	if err != nil {
		t.Fatal(err)
	}
	defer r.counts.Free()
	assignment := unassigned(n)
	check := func(counted bool) {
		for v, adj := range neighbours {
			var readers [parts]int
			for _, u := range adj {
				if p := assignment[u]; p >= 0 {
					readers[p]++
				}
			}
			for p, want := range readers {
				word, at := bitsOf(r.of(int64(v)), int32(p))
				if got := int(*word >> at & 3); (counted || got < 2) && got != min(want, 2) {
					t.Fatalf("node %d has %d readers in part %d: known are %d", v, want, p, got)
				}
			}
		}
	}
	for range 500 {
		v, to := rng.IntN(n), rng.Int32N(parts)
		if rng.IntN(2) == 0 {
			to = rng.Int32N(3)
		}
		if from := assignment[v]; from != to {
			assignment[v] = to
			r.move(neighbours[v], from, to)
		}
		check(false)
	}
	for v, adj := range neighbours {
		r.count(int64(v), adj, assignment)
	}
	check(true)
}
