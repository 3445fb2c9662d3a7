package sample

// table gives the nodes of one type that a batch meets consecutive numbers, in
// the order in which they are met. Own nodes look in an array, the others,
// fewer where the partition is any good, in a hash table, so that memory
// follows own nodes and the batch, not the whole graph.
type table struct {
	first int64   // id of own row 0
	own   []int32 // number + 1 of own rows; 0: not met
	slots []slot  // open addressing, a power of two, at most half full
	used  int
	Nodes []int64 // by number
}

type slot struct {
	id  int64
	num int32 // number + 1; 0: free
}

func newTable(space Space, rank int) *table {
	return &table{first: space[rank], own: make([]int32, space[rank+1]-space[rank]), slots: make([]slot, 1<<10)}
}

// reset forgets all nodes.
func (t *table) reset() {
	for _, id := range t.Nodes {
		if row := uint64(id - t.first); row < uint64(len(t.own)) {
			t.own[row] = 0
		}
	}
	clear(t.slots)
	t.used, t.Nodes = 0, t.Nodes[:0]
}

// number returns the number of a node, a new one where it is met first.
func (t *table) number(id int64) int32 {
	if row := uint64(id - t.first); row < uint64(len(t.own)) {
		n := t.own[row]
		if n == 0 {
			t.Nodes = append(t.Nodes, id)
			n = int32(len(t.Nodes))
			t.own[row] = n
		}
		return n - 1
	}
	mask := uint64(len(t.slots) - 1)
	for h := hash(id) & mask; ; h = (h + 1) & mask {
		s := &t.slots[h]
		if s.num == 0 {
			t.Nodes = append(t.Nodes, id)
			*s = slot{id, int32(len(t.Nodes))}
			if t.used++; 2*t.used > len(t.slots) {
				t.grow()
			}
			return int32(len(t.Nodes)) - 1
		}
		if s.id == id {
			return s.num - 1
		}
	}
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
