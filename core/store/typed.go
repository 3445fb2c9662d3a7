package store

import (
	"slices"
	"sort"
)

// TypeRows is one node type, or one relation under the name
// source:relation:destination: how many nodes or edges it has, and their features.
type TypeRows struct {
	Name   string
	Rows   int64
	Arrays []TensorInfo
}

// Source is a graph of any types to be partitioned. Nodes are numbered
// over all types, one type after the other, and so are edges.
type Source interface {
	NodeTypes() []TypeRows
	EdgeTypes() []TypeRows
	// EdgesBatch yields runs of edges in order, the same each time.
	EdgesBatch(yield func(first int64, src, dst []int64) error) error
	// ReadRows reads rows of a feature of one type, from the type's row first on, into dst.
	ReadRows(edge bool, kind int, name string, first int64, dst []byte) error
}

// keepsIDs tells whether original ids are among the features, so that there are no others.
func (t *TypeRows) keepsIDs() bool {
	return slices.ContainsFunc(t.Arrays, func(a TensorInfo) bool { return a.Name == origID })
}

// kinds are the node types, or the relations, of a graph that is written, and
// how their rows fall to partitions.
type kinds struct {
	list  []TypeRows
	first []int64   // [types + 1] first original id of each
	count [][]int64 // [partition][type]
}

func newKinds(list []TypeRows, parts int) kinds {
	k := kinds{list: list, first: make([]int64, len(list)+1), count: make([][]int64, parts)}
	for t, of := range list {
		k.first[t+1] = k.first[t] + of.Rows
	}
	for p := range k.count {
		k.count[p] = make([]int64, len(list))
	}
	return k
}

// runs cuts n rows from original id first on by type: do(t, lo, hi) for rows
// first+lo to first+hi-1.
func (k *kinds) runs(first, n int64, do func(t int, lo, hi int64) error) error {
	for at := int64(0); at < n; {
		t := k.of(first + at)
		hi := min(n, k.first[t+1]-first)
		if err := do(t, at, hi); err != nil {
			return err
		}
		at = hi
	}
	return nil
}

// of is the type of an original id.
func (k *kinds) of(id int64) int {
	return sort.Search(len(k.list), func(t int) bool { return k.first[t+1] > id })
}

// ranges are the new ids of each type in each partition: partition by
// partition, in each type by type, as DGL numbers them.
func (k *kinds) ranges() [][][2]int64 {
	out := make([][][2]int64, len(k.list))
	var at int64
	for _, count := range k.count {
		for t, n := range count {
			out[t] = append(out[t], [2]int64{at, at + n})
			at += n
		}
	}
	return out
}

// bounds are the ends of those ranges in ascending order, type by type in each
// partition.
func (k *kinds) bounds() []int64 {
	var out []int64
	var at int64
	for _, count := range k.count {
		for _, n := range count {
			at += n
			out = append(out, at)
		}
	}
	return out
}

// newType is the type of a new id, given bounds.
func (k *kinds) newType(bounds []int64, id int64) int {
	return sort.Search(len(bounds), func(i int) bool { return bounds[i] > id }) % len(k.list)
}

// maps are what the JSON file says of types: ranges and numbers.
func (k *kinds) maps() (ranges ordered[[][2]int64], numbers ordered[int]) {
	for t, r := range k.ranges() {
		ranges.set(k.list[t].Name, r)
		numbers.set(k.list[t].Name, t)
	}
	return ranges, numbers
}

// features are the tensors of a feature file of a partition, original ids included,
// in the order of types; of each, the original ids come last.
func (k *kinds) features(p int) (list []TensorInfo) {
	for t, of := range k.list {
		rows := k.count[p][t]
		for _, a := range of.Arrays {
			list = append(list, TensorInfo{of.Name + "/" + a.Name, a.DType, append([]int64{rows}, a.Shape[1:]...)})
		}
		if !of.keepsIDs() {
			list = append(list, TensorInfo{of.Name + "/" + origID, Int64, []int64{rows}})
		}
	}
	return list
}

// place is the index in features of array a of type t; that of the original
// ids is a = len(Arrays).
func (k *kinds) place(t, a int) int {
	for _, of := range k.list[:t] {
		a += len(of.Arrays)
		if !of.keepsIDs() {
			a++
		}
	}
	return a
}

// work is the number of rows that writing the features reads.
func (k *kinds) work() (n int64) {
	for _, of := range k.list {
		n += of.Rows * int64(len(of.Arrays))
	}
	return n
}
