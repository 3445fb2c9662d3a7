package sar

import (
	"math"

	"sar/core/internal/dtypes"
	"sar/core/internal/must"
	"sar/core/internal/view"
	"sar/core/mem"
	"sar/core/store/npy"
)

// segment is the run of destinations, by number, whose edges one pass over the edges places.
type segment struct {
	lo, hi int64
	off    int64 // of the first edge in the buffer
}

// fill writes the sources of the edges of every part by destination, and row pointers. The
// edges of a destination keep their order.
func (s *writer) fill() {
	s.createArrays()
	next := make([]int64, len(s.rels))
	for done := false; !done; {
		w, slots := s.window(next)
		s.fillWindow(w, slots)
		done = true
		for i, r := range s.rels {
			done = done && next[i] == int64(len(r.slots.Data))
		}
	}
}

// createArrays makes the files whose sizes are known.
func (s *writer) createArrays() {
	for p := range s.parts {
		s.parts[p].Relations = make([]partRelationJSON, len(s.rels))
		for i, r := range s.rels {
			r.arrays = append(r.arrays, map[string]npy.Output{})
			s.newArray(p, i, rowPtrArray, dtypes.Int32, s.node.count[p][r.dst]+1)
			names := []string{colArray, rowArray, rowEdgeArray}
			if r.sorted {
				names = names[:2]
			}
			for _, name := range names {
				s.newArray(p, i, name, dtypes.Int32, s.edge.count[p][i])
			}
		}
	}
}

// window is the next run of destinations of each relation whose edges memory holds.
func (s *writer) window(next []int64) (w []segment, slots int64) {
	left := s.forEdges(0)
	for i, r := range s.rels {
		seg := segment{lo: next[i], hi: next[i], off: slots}
		size := int64(4)
		if !r.sorted {
			size = 8
		}
		for seg.hi < int64(len(r.slots.Data)) {
			n := int64(r.slots.Data[seg.hi])
			if slots > 0 && (n*size > left || slots+n > math.MaxUint32) {
				left = 0
				break
			}
			left -= n * size
			slots += n
			seg.hi++
		}
		next[i] = seg.hi
		w = append(w, seg)
	}
	return w, slots
}

// fillWindow places the edges of a window.
func (s *writer) fillWindow(w []segment, slots int64) {
	source := scratch[uint32](slots)
	defer source.Free()
	var position mem.Array[int32]
	defer position.Free()
	for i, r := range s.rels {
		at := uint32(w[i].off)
		for v := w[i].lo; v < w[i].hi; v++ {
			at, r.slots.Data[v] = at+r.slots.Data[v], at
		}
		if !r.sorted && position.Data == nil {
			position = scratch[int32](slots)
		}
	}
	seen := make([][]int32, len(s.rels)) // edges of each part, so far
	for i := range seen {
		seen[i] = make([]int32, s.to.Parts)
	}
	s.runs(func(i int, _ int64, src, dst []int64) {
		r, lo, hi := s.rels[i], w[i].lo, w[i].hi
		if lo == hi {
			return
		}
		for k, d := range dst {
			v := int64(s.id.Data[d])
			inside := v >= lo && v < hi
			if !r.sorted {
				n := &seen[i][s.to.Assignment[d]]
				if inside {
					position.Data[r.slots.Data[v]] = *n
				}
				*n++
			}
			if inside {
				source.Data[r.slots.Data[v]] = s.id.Data[src[k]]
				r.slots.Data[v]++
			}
		}
	})
	for i := range s.rels {
		s.writeWindow(i, w[i], source.Data, position.Data)
	}
	s.progress(slots)
}

// writeWindow writes the edges that were placed, and makes slots counts again.
func (s *writer) writeWindow(i int, w segment, source []uint32, position []int32) {
	r, end := s.rels[i], uint32(w.off)
	for p := range s.parts {
		base := s.base[r.dst][p]
		lo, hi := max(w.lo, base), min(w.hi, s.base[r.dst][p+1])
		if lo >= hi {
			continue
		}
		files := r.arrays[p]
		ptr := make([]int32, hi-lo+1)
		must.Do(files[rowPtrArray].Read(lo-base, ptr[:1]))
		begin := end
		for v := lo; v < hi; v++ {
			n := r.slots.Data[v] - end
			end += n
			r.slots.Data[v] = n
			ptr[v-lo+1] = ptr[v-lo] + int32(n)
		}
		must.Do(files[rowPtrArray].Write(lo-base, view.Bytes(ptr)))
		must.Do(files[colArray].Write(int64(ptr[0]), view.Bytes(source[begin:end])))
		if !r.sorted {
			must.Do(files[rowEdgeArray].Write(int64(ptr[0]), view.Bytes(position[begin:end])))
		}
	}
}
