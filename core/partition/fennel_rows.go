package partition

import "sar/core/mem"

// readers knows how many nodes of each part read a node's row: none, one, or several. A part
// receives a row once, however many of its nodes read it.
type readers struct {
	counts mem.Array[uint64] // [nodes, words], 2 bits a part
	words  int               // of a node
}

const (
	partsOfWord = 32
	lowBits     = 0x5555555555555555 // of each part in a word
)

// A score by rows is in sixteenths of a row. An edge inside a part counts one of them: where
// rows travel to all parts anyway, edges decide.
const (
	rowScore  = 16
	edgeScore = 1
	// Penalties are for edges, so they are scaled. Of 0.5, 1, 1.5, 2, 3 and 4 rows to an edge, 1.5 and
	// 2 leave the fewest rows, and 1.5 fewer for the slowest worker.
	rowPenalty = 1.5 * rowScore
)

func newReaders(nodes int64, parts int) (r readers, err error) {
	r.words = (parts + partsOfWord - 1) / partsOfWord
	r.counts, err = mem.Make[uint64](mem.Scratch, int(nodes)*r.words)
	return r, err
}

func (r *readers) of(v int64) []uint64 {
	return r.counts.Data[v*int64(r.words) : (v+1)*int64(r.words)]
}

// count tells node v of the parts in which its neighbours are.
func (r *readers) count(v int64, adj, assignment []int32) {
	counts := r.of(v)
	clear(counts)
	for _, u := range adj {
		if p := assignment[u]; p >= 0 {
			addReader(counts, p)
		}
	}
}

// move tells neighbours that a node reads them in another part than before, if it had one.
func (r *readers) move(adj []int32, from, to int32) {
	for _, u := range adj {
		counts := r.of(int64(u))
		if from >= 0 {
			dropReader(counts, from)
		}
		addReader(counts, to)
	}
}

func bitsOf(counts []uint64, p int32) (word *uint64, at int) {
	return &counts[p/partsOfWord], 2 * int(p%partsOfWord)
}

func addReader(counts []uint64, p int32) {
	if word, at := bitsOf(counts, p); *word>>at&2 == 0 {
		*word += 1 << at
	}
}

// dropReader leaves several as they are. How many they are is known again when the node's
// neighbours are counted.
func dropReader(counts []uint64, p int32) {
	if word, at := bitsOf(counts, p); *word>>at&3 == 1 {
		*word -= 1 << at
	}
}

// scoreRows scores, for each part of a node's group, the rows that need not travel if the node
// is there: of neighbours that are there themselves or that others read there, and its own.
func (w *fennel) scoreRows(s *scorer, v int64, adj []int32, low int32) {
	for _, u := range adj {
		w.gain(s, low, w.assignment[u], edgeScore)
	}
	for i := range w.readers.words {
		first := int32(i * partsOfWord)
		mine := bitOf(w.assignment[v] - first)
		own := w.readers.of(v)[i]
		var t tally
		t.add((own | own>>1) & lowBits)
		for _, u := range adj {
			counts := w.readers.of(int64(u))[i]
			several := counts >> 1 & lowBits
			there := counts&lowBits&^mine | several // not where only the node itself reads it
			t.add(there | bitOf(w.assignment[u]-first))
			if t.full() {
				w.gainAll(s, low, first, &t)
			}
		}
		w.gainAll(s, low, first, &t)
	}
}

// bitOf is the low bit of a part in a word, and 0 for parts of other words and none.
func bitOf(p int32) uint64 {
	if uint32(p) >= partsOfWord {
		return 0
	}
	return 1 << (2 * p)
}

// tally counts in bytes how often each low bit was set: byte b of word k is of part 4b + k.
type tally struct {
	bytes [4]uint64
	added int
}

func (t *tally) add(parts uint64) {
	for k := range t.bytes {
		t.bytes[k] += parts >> (2 * k) & 0x0101010101010101
	}
	t.added++
}

func (t *tally) full() bool { return t.added == 255 }

// gainAll adds what a tally of the parts from first on has counted, in rows, and empties it.
func (w *fennel) gainAll(s *scorer, low, first int32, t *tally) {
	for k, bytes := range t.bytes {
		for b := int32(k); bytes != 0; b, bytes = b+4, bytes>>8 {
			if rows := int64(bytes & 255); rows > 0 {
				w.gain(s, low, first+b, rows*rowScore)
			}
		}
	}
	*t = tally{}
}
