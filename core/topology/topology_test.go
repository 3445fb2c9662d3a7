package topology

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/kernel"
	"sar/core/mem"
)

// Every owner knows which of its rows each peer reads, how many of them travel as rows, and how
// many edges leave each.
func TestConnectAgainstTheWholeGraph(t *testing.T) {
	worlds(t, func(*comm.Communicator, *Graph) error { return nil }, func(w *whole, parts []*Graph) {
		world := len(parts)
		for p, g := range parts {
			for i, rel := range g.Relations {
				degrees, total := make([]int64, rel.NumSrc), int64(0)
				for q := range world {
					var rows []int32
					for _, e := range w.between(i, p, q) {
						rows = append(rows, w.row(e.src))
						degrees[w.row(e.src)]++
					}
					slices.Sort(rows)
					rows = slices.Compact(rows)
					if q == p {
						continue
					}
					send := slices.Clone(rel.Send[(q-p+world)%world].Data)
					leading := rel.SendLeading[(q-p+world)%world]
					if halo := parts[q].Relations[i].Halo[(q-p+world)%world]; leading != halo.Leading {
						t.Fatalf("%s: rank %d sends %v rows to rank %d, which expects %v", rel.Type, p, leading, q, halo.Leading)
					}
					if err := groupsAscend(rel, (q-p+world)%world); err != nil {
						t.Fatal(err)
					}
					if slices.Sort(send); !slices.Equal(send, rows) {
						t.Fatalf("%s: rank %d sends %v to rank %d, expected %v", rel.Type, p, send, q, rows)
					}
				}
				if !slices.Equal(rel.OutDegree.Data, degrees) {
					t.Fatalf("%s: rank %d has out-degrees %v, expected %v", rel.Type, p, rel.OutDegree.Data, degrees)
				}
				for _, e := range w.edges {
					if e.relation == i {
						total++
					}
				}
				src, dst := g.NumNodesGlobal(rel)
				if rel.NumEdgesGlobal != total || src != w.book.NumNodesGlobal(rel.SrcType) ||
					dst != w.book.NumNodesGlobal(rel.DstType) {
					t.Fatalf("%s: %d edges, %d sources and %d destinations in all", rel.Type, rel.NumEdgesGlobal, src, dst)
				}
			}
		}
	})
}

// A list that does not ascend between the places where another price begins is refused.
func TestGroupsAscend(t *testing.T) {
	rel := &graph.Relation{Structure: &graph.Structure{Parts: 2}, Send: make([]mem.Array[int32], 2),
		SendLeading: [][graph.NumPrices]int32{{}, {2, 3, 3}}}
	for rows, want := range map[[5]int32]bool{{1, 7, 0, 2, 9}: true, {7, 1, 0, 2, 9}: false, {1, 7, 0, 2, 2}: false} {
		rel.Send[1].Data = rows[:]
		if err := groupsAscend(rel, 1); (err == nil) != want {
			t.Errorf("rows %v: %v", rows, err)
		}
	}
}

// Every edge between two workers is from a row that travels or of one sum, at every price, and both ends of a sum
// have the same row.
func TestCoverAgainstTheWholeGraph(t *testing.T) {
	sums := 0
	worlds(t, func(c *comm.Communicator, g *Graph) error {
		for _, rel := range g.Relations {
			for price := range graph.NumPrices + 1 {
				for range 2 {
					if _, err := g.Cover(c, rel, price); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}, func(w *whole, parts []*Graph) {
		eachShard(parts, func(i, p, r, q int) {
			rel := parts[p].Relations[i]
			for price := range graph.NumPrices + 1 {
				travels, got, want := map[int32]bool{}, [][2]int32{}, [][2]int32{}
				for _, row := range rel.Send[r].Data[:rel.Lead(r, price)] {
					travels[row] = true
				}
				if c := rel.Covers[price]; c != nil {
					rows := parts[q].Relations[i].Covers[price].Rows[r].Data
					for n, row := range rows {
						degree := parts[q].Relations[i].RowPtr.Data[row+1] - parts[q].Relations[i].RowPtr.Data[row]
						if c.InDegree[r].Data[n] != degree {
							t.Fatalf("%s: row %d of rank %d has in-degree %d, not %d", rel.Type, row, q, degree, c.InDegree[r].Data[n])
						}
						for _, source := range c.Sums[r].Col.Data[c.Sums[r].Ptr.Data[n]:c.Sums[r].Ptr.Data[n+1]] {
							got = append(got, [2]int32{source, row})
						}
					}
					sums += len(rows)
				}
				for _, e := range w.between(i, p, q) {
					if !travels[w.row(e.src)] {
						want = append(want, [2]int32{w.row(e.src), w.row(e.dst)})
					}
				}
				if !sameSet(got, want) {
					t.Fatalf("%s, price %d, rank %d for rank %d: sums of %v, expected %v", rel.Type, price, p, q, got, want)
				}
			}
		})
	})
	if sums < 100 {
		t.Errorf("%d sums in all graphs together", sums)
	}
}

// HandOver gives owners of sources, at every price, the edges from rows that do not travel into every peer, and both
// ends name the rows alike.
func TestHandOverAgainstTheWholeGraph(t *testing.T) {
	worlds(t, func(c *comm.Communicator, g *Graph) error {
		all := slices.Repeat([]bool{true}, c.World())
		for _, rel := range g.Relations {
			for price := range graph.NumPrices + 1 {
				for range 2 { // then all is there already
					if err := g.HandOver(c, rel, price, all, all); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}, func(w *whole, parts []*Graph) {
		eachShard(parts, func(i, p, r, q int) {
			g, rel := parts[p], parts[p].Relations[i]
			for price := range graph.NumPrices + 1 {
				o, reached := &rel.Pushed[price].Outgoing[r], parts[q].Relations[i].Pushed[price].Reached[r].Data
				lead := rel.Lead(r, price)
				sources, travels := rel.Send[r].Data[lead:], rel.Send[r].Data[:lead]
				var got, want [][2]int32
				for k, row := range sources {
					lo, hi := o.Ptr.Data[k], o.Ptr.Data[k+1]
					numbers := make([]int32, hi-lo)
					o.Rows(numbers, int64(lo), 0)
					for _, n := range numbers {
						got = append(got, [2]int32{row, reached[n]})
					}
				}
				for _, e := range w.between(i, p, q) {
					if !slices.Contains(travels, w.row(e.src)) {
						want = append(want, [2]int32{w.row(e.src), w.row(e.dst)})
					}
				}
				if !sameSet(got, want) {
					t.Fatalf("%s, price %d, rank %d into rank %d: edges %v, expected %v", rel.Type, price, p, q, got, want)
				}
				shard := g.shards[shardsKey{rel, price}].Out[r]
				if int(shard.Edges) != len(want) || int(shard.Sources) != len(sources) || int(shard.Rows) != len(reached) {
					t.Fatalf("%s, price %d, rank %d into rank %d: %+v", rel.Type, price, p, q, shard)
				}
			}
		})
	})
}

// eachShard calls f with each relation and each pair of ranks, p and, in round r of p, q.
func eachShard(parts []*Graph, f func(relation, p, r, q int)) {
	for p, g := range parts {
		for i := range g.Relations {
			for r := 1; r < len(parts); r++ {
				f(i, p, r, (p+r)%len(parts))
			}
		}
	}
}

func sameSet(a, b [][2]int32) bool {
	order := func(x, y [2]int32) int { return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1])) }
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, order)
	slices.SortFunc(b, order)
	return slices.Equal(a, b)
}

// A block has the edges into its seeds, and its sources are the rows that some worker reads.
func TestBlockAgainstTheWholeGraph(t *testing.T) {
	for _, keep := range []bool{false, true} {
		var mu sync.Mutex
		blocks, seeds := map[int]*Graph{}, map[int][][]int64{}
		worlds(t, func(c *comm.Communicator, g *Graph) error {
			r := rand.New(rand.NewPCG(5, uint64(c.Rank())))
			chosen := make([][]int64, len(g.Book.NodeTypes))
			for k := range chosen {
				rows := int(g.Book.NumNodes(k, c.Rank()))
				for _, row := range r.Perm(rows)[:r.IntN(rows+1)] {
					chosen[k] = append(chosen[k], int64(row))
				}
			}
			b, err := g.Block(c, chosen, keep)
			mu.Lock()
			defer mu.Unlock()
			blocks[c.Rank()], seeds[c.Rank()] = b, chosen
			return err
		}, func(w *whole, parts []*Graph) {
			checkBlock(t, w, blocks, seeds, keep)
			for p := range parts {
				blocks[p].Free()
				delete(blocks, p)
			}
		})
	}
}

func checkBlock(t *testing.T, w *whole, blocks map[int]*Graph, seeds map[int][][]int64, keep bool) {
	t.Helper()
	world := len(blocks)
	isSeed := map[int64]bool{}
	for p := range world {
		for k, rows := range seeds[p] {
			for _, row := range rows {
				isSeed[w.book.NodeStart[k][p]+row] = true
			}
		}
	}
	read := map[int64]bool{}
	for _, e := range w.edges {
		if isSeed[e.dst] {
			read[e.src] = true
		}
	}
	for p := range world {
		b := blocks[p]
		for k := range w.book.NodeTypes {
			var want []int32
			for _, row := range seeds[p][k] {
				if keep {
					want = append(want, int32(row))
				}
			}
			for id := w.book.NodeStart[k][p]; id < w.book.NodeEnd[k][p]; id++ {
				if read[id] && !(keep && isSeed[id]) {
					want = append(want, w.row(id))
				}
			}
			if !slices.Equal(b.BlockSources(k), want) {
				t.Fatalf("rank %d has sources %v of type %d, expected %v", p, b.BlockSources(k), k, want)
			}
		}
		for i, rel := range b.Relations {
			degrees := make([]int64, rel.NumSrc)
			var got, want [][2]int32 // node numbers fit
			start := func(kind, q int) int32 { return int32(w.book.NodeStart[kind][q]) }
			for row := range rel.NumDst {
				dst := start(rel.DstType, p) + int32(seeds[p][rel.DstType][row])
				for _, col := range rel.Col.Data[rel.RowPtr.Data[row]:rel.RowPtr.Data[row+1]] {
					src := int32(-1)
					if int(col) < rel.NumSrc {
						src = start(rel.SrcType, p) + b.BlockSources(rel.SrcType)[col]
					}
					for r := 1; r < world; r++ {
						if h := rel.Halo[r]; col >= h.Begin && col < h.End {
							peer := blocks[h.Peer]
							sent := peer.Relations[i].Send[r].Data[col-h.Begin]
							src = start(rel.SrcType, h.Peer) + peer.BlockSources(rel.SrcType)[sent]
						}
					}
					got = append(got, [2]int32{src, dst})
				}
			}
			for _, e := range w.edges {
				if e.relation != i || !isSeed[e.dst] {
					continue
				}
				if w.owner(e.dst) == p {
					want = append(want, [2]int32{int32(e.src), int32(e.dst)})
				}
				if w.owner(e.src) == p {
					degrees[slices.Index(b.BlockSources(rel.SrcType), w.row(e.src))]++
				}
			}
			if !sameSet(got, want) {
				t.Fatalf("%s, rank %d: edges %v of the block, expected %v", rel.Type, p, got, want)
			}
			if !slices.Equal(rel.OutDegree.Data, degrees) {
				t.Fatalf("%s, rank %d: out-degrees %v, expected %v", rel.Type, p, rel.OutDegree.Data, degrees)
			}
		}
	}
}

// stored is a part whose relations were made with the partitioning.
type stored struct {
	*part
	rels         []*graph.Relation
	partitioning int64
}

func (s *stored) Relations(int) ([]*graph.Relation, int64, error) {
	return s.rels, s.partitioning, nil
}

// Parts of two runs of the partitioner are refused, on every rank, before a row travels.
func TestPartsOfDifferentRuns(t *testing.T) {
	w := randomWhole(t, rand.New(rand.NewPCG(1, 2)), 2, 20, 100, -1)
	for name, c := range map[string]struct {
		partitioning [2]int64
		cut          bool
		want         string
	}{
		"as they are":    {[2]int64{7, 7}, false, ""},
		"another number": {[2]int64{7, 8}, false, "another partitioning"},
		"fewer rows":     {[2]int64{7, 7}, true, "their parts are not of the same run"},
	} {
		errs := onRanks(t, 2, func(k *comm.Communicator) error {
			g, err := Build(k, kernel.NewPool(1), w.book, w.part(k.Rank()), graph.BuildOptions{EdgeOrder: true})
			if err != nil {
				return err
			}
			if send := &g.Relations[0].Send[1]; c.cut && k.Rank() == 0 {
				send.Data = send.Data[:len(send.Data)-1]
			}
			part := &stored{w.part(k.Rank()), g.Relations, c.partitioning[k.Rank()]}
			again, err := Build(k, kernel.NewPool(1), w.book, part, graph.BuildOptions{})
			if err == nil {
				again.Free()
			}
			return err
		})
		if err := errors.Join(errs...); (c.want == "") != (err == nil) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
