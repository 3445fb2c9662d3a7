package sample

import "sar/core/graph"

// table gives the nodes of one type that a batch meets consecutive numbers, in
// the order in which they are met. Nodes are told by their position among all
// nodes of the type. Where an array over all of those is small compared with the graph
// that the worker holds, it is one lookup; else own nodes look in an array, the
// others in a hash table, so that memory follows own nodes and the batch.
type table struct {
	first int64   // position of own row 0
	total uint64  // nodes of the type
	all   []int32 // number + 1 by position, 0: not met; nil where that is too large
	own   []int32 // without all: the same of own rows
	slots []slot  // open addressing, a power of two, at most half full
	used  int
	Nodes []int64 // by number
}

type slot struct {
	id  int64
	num int32 // number + 1; 0: free
}

// newTable makes the table of a type; one of at most `few` nodes has an array
// over all of them.
func newTable(space Space, rank int, few uint64) *table {
	t := &table{first: space[rank] - space[0], total: uint64(space[len(space)-1] - space[0])}
	if t.total <= few {
		t.all = make([]int32, t.total)
		return t
	}
	t.own, t.slots = make([]int32, space[rank+1]-space[rank]), make([]slot, 1<<10)
	return t
}

// fewNodes is how many nodes are few compared with a worker's edges, which take 4 bytes
// each and more: so many that an array over them is a quarter of that, or 4 MiB.
func fewNodes(rels []*graph.Relation) uint64 {
	var edges int64
	for _, rel := range rels {
		edges += rel.NumEdges
	}
	return uint64(max(1<<20, edges/4))
}

// reset forgets all nodes.
func (t *table) reset() {
	for _, id := range t.Nodes {
		if t.all != nil {
			t.all[id] = 0
		} else if row := uint64(id - t.first); row < uint64(len(t.own)) {
			t.own[row] = 0
		}
	}
	if t.used > 0 {
		clear(t.slots)
	}
	t.used, t.Nodes = 0, t.Nodes[:0]
}

// place is where the number of a node stands, or the free slot of one that was
// not met.
func (t *table) place(id int64) *int32 {
	if t.all != nil {
		return &t.all[id]
	}
	if row := uint64(id - t.first); row < uint64(len(t.own)) {
		return &t.own[row]
	}
	mask := uint64(len(t.slots) - 1)
	h := hash(id) & mask
	for t.slots[h].num != 0 && t.slots[h].id != id {
		h = (h + 1) & mask
	}
	t.slots[h].id = id
	return &t.slots[h].num
}

// find returns the number of a node, -1 where it was not met.
func (t *table) find(id int64) int32 { return *t.place(id) - 1 }

// number returns the number of a node, a new one where it is met first.
func (t *table) number(id int64) int32 {
	at := t.place(id)
	if *at != 0 {
		return *at - 1
	}
	t.Nodes = append(t.Nodes, id)
	n := int32(len(t.Nodes))
	*at = n
	if t.all == nil && uint64(id-t.first) >= uint64(len(t.own)) {
		if t.used++; 2*t.used > len(t.slots) {
			t.grow()
		}
	}
	return n - 1
}

// numbers replaces positions by numbers. It returns the place of the first that
// is no position of the type, or -1.
func (t *table) numbers(ids []int64) int {
	if t.all == nil {
		for k, id := range ids {
			if uint64(id) >= t.total {
				return k
			}
			ids[k] = int64(t.number(id))
		}
		return -1
	}
	all := t.all
	for k, id := range ids {
		if uint64(id) >= uint64(len(all)) {
			return k
		}
		n := all[id]
		if n == 0 {
			t.Nodes = append(t.Nodes, id)
			n = int32(len(t.Nodes))
			all[id] = n
		}
		ids[k] = int64(n) - 1
	}
	return -1
}

func hash(id int64) uint64 {
	x := uint64(id) * golden
	return x ^ x>>32
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, 2*len(old))
	mask := uint64(len(t.slots) - 1)
	for _, s := range old {
		if s.num == 0 {
			continue
		}
		h := hash(s.id) & mask
		for t.slots[h].num != 0 {
			h = (h + 1) & mask
		}
		t.slots[h] = s
	}
}
