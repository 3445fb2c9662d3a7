package store

import (
	"fmt"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/internal/bitset"
	"sar/core/internal/must"
	"sar/core/mem"
	"sar/core/store/disk"
)

// Nodes, NumEdges and Edges make the partition a graph.EdgeSource. The ids stay valid until the
// partition is closed.
func (p *Partition) Nodes() ([]int64, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.files.NumNodes()
	if p.ids.Data == nil && n > 0 {
		ids, err := mem.Make[int64](mem.Scratch, int(n))
		if err != nil {
			return nil, 0, err
		}
		if err = p.files.NodeIDs(ids.Data); err != nil {
			ids.Free()
			return nil, 0, err
		}
		p.ids = ids
	}
	start, end := p.book.Nodes(p.part)
	return p.ids.Data, int(end - start), nil
}

func (p *Partition) NumEdges() int64 { return p.files.NumEdges() }

func (p *Partition) Edges(yield func(graph.EdgeBatch) error) error { return p.files.Batches(yield) }

// NumRelationEdges is the number of in-edges that the partition owns of a relation.
func (p *Partition) NumRelationEdges(relation int) (int64, error) {
	if relation < 0 || relation >= len(p.book.EdgeTypes) {
		return 0, argument.Errorf("relation %d asked for: the graph has %d", relation, len(p.book.EdgeTypes))
	}
	return p.book.NumEdges(relation, p.part), nil
}

// EachEdge yields the edges of a relation with the homogenized ids of their ends, in the order of
// their own ids, of which first is one, and holds so many at a time: they come in the order of
// the file, which is read as often as that takes.
func (p *Partition) EachEdge(relation int, room int64, yield func(first int64, src, dst []int64) error) (err error) {
	defer must.Return(&err)
	n := must.Get(p.NumRelationEdges(relation))
	room = max(1, min(room, n))
	ends := must.Get(mem.Make[int64](mem.Scratch, int(2*room)))
	defer ends.Free()
	start := p.book.EdgeStart[relation][p.part]
	for lo := int64(0); lo < n; lo += room {
		m := min(room, n-lo)
		src, dst := ends.Data[:m], ends.Data[room:room+m]
		must.Do(p.relationEdges(relation, lo, m, src, dst, nil))
		for at := int64(0); at < m; at += disk.Batch {
			end := min(at+disk.Batch, m)
			must.Do(yield(start+lo+at, src[at:end], dst[at:end]))
		}
	}
	return nil
}

// RelationEdges fills src, dst and id with the homogenized ids of the in-edges
// of a relation, in ascending edge id. Each has NumRelationEdges elements, or
// is nil where it is not wanted.
func (p *Partition) RelationEdges(relation int, src, dst, id []int64) error {
	n, err := p.NumRelationEdges(relation)
	if err != nil {
		return err
	}
	for _, s := range [][]int64{src, dst, id} {
		if s != nil && int64(len(s)) != n {
			return argument.Errorf("relation %s has %d edges here: the memory given for them holds %d",
				p.book.EdgeTypes[relation], n, len(s))
		}
	}
	return p.relationEdges(relation, 0, n, src, dst, id)
}

// relationEdges is RelationEdges for n of the edges, from the one numbered lo within the
// relation on.
func (p *Partition) relationEdges(relation int, lo, n int64, src, dst, id []int64) (err error) {
	defer must.Return(&err)
	nodes, _, err := p.Nodes()
	must.Do(err)
	start := p.book.EdgeStart[relation][p.part] + lo
	seen := must.Get(bitset.New(n))
	defer seen.Free()
	count := int64(0)
	must.Do(p.files.Batches(func(b graph.EdgeBatch) error {
		for i := range b.ID {
			if b.Inner != nil && b.Inner[i] == 0 || b.Type != nil && int(b.Type[i]) != relation {
				continue
			}
			k := b.ID[i] - start
			if k < 0 || k >= n {
				continue
			}
			if !seen.Add(k) {
				return p.files.Bad("each edge id once", "%d again", b.ID[i])
			}
			count++
			if src != nil {
				src[k] = nodes[b.Src[i]]
			}
			if dst != nil {
				dst[k] = nodes[b.Dst[i]]
			}
			if id != nil {
				id[k] = b.ID[i]
			}
		}
		return nil
	}))
	if count != n {
		return p.files.Bad(fmt.Sprintf("%d inner edges of relation %s", n, p.book.EdgeTypes[relation]), "%d", count)
	}
	return nil
}
