package split

import (
	"sort"

	"sar/core/store/disk"
	"sar/core/store/input"
)

// Kinds are the node types, or the relations, of a graph that is written, and
// how their rows fall to partitions.
type Kinds struct {
	List  []input.TypeRows
	First []int64   // [types + 1] first original id of each
	Count [][]int64 // [partition][type]
}

func NewKinds(list []input.TypeRows, parts int) Kinds {
	k := Kinds{List: list, First: make([]int64, len(list)+1), Count: make([][]int64, parts)}
	for t, of := range list {
		k.First[t+1] = k.First[t] + of.Rows
	}
	for p := range k.Count {
		k.Count[p] = make([]int64, len(list))
	}
	return k
}

// Runs cuts n rows from original id first on by type: do(t, lo, hi) for rows
// first+lo to first+hi-1.
func (k *Kinds) Runs(first, n int64, do func(t int, lo, hi int64) error) error {
	for at := int64(0); at < n; {
		t := k.of(first + at)
		hi := min(n, k.First[t+1]-first)
		if err := do(t, at, hi); err != nil {
			return err
		}
		at = hi
	}
	return nil
}

// of is the type of an original id.
func (k *Kinds) of(id int64) int {
	return sort.Search(len(k.List), func(t int) bool { return k.First[t+1] > id })
}

// ranges are the new ids of each type in each partition: partition by
// partition, in each type by type, as DGL numbers them.
func (k *Kinds) ranges() [][][2]int64 {
	out := make([][][2]int64, len(k.List))
	var at int64
	for _, count := range k.Count {
		for t, n := range count {
			out[t] = append(out[t], [2]int64{at, at + n})
			at += n
		}
	}
	return out
}

// Bounds are the ends of those ranges in ascending order, type by type in each
// partition.
func (k *Kinds) Bounds() []int64 {
	var out []int64
	var at int64
	for _, count := range k.Count {
		for _, n := range count {
			at += n
			out = append(out, at)
		}
	}
	return out
}

// NewType is the type of a new id, given bounds.
func (k *Kinds) NewType(bounds []int64, id int64) int {
	return sort.Search(len(bounds), func(i int) bool { return bounds[i] > id }) % len(k.List)
}

// Maps are what the JSON file says of types: ranges and numbers.
func (k *Kinds) Maps() (ranges disk.Object[[][2]int64], numbers disk.Object[int]) {
	for t, r := range k.ranges() {
		ranges.Set(k.List[t].Name, r)
		numbers.Set(k.List[t].Name, t)
	}
	return ranges, numbers
}

// Features are the tensors of a feature file of a partition, original ids included,
// in the order of types; of each, the original ids come last.
func (k *Kinds) Features(p int) (list []disk.TensorInfo) {
	for t, of := range k.List {
		rows := k.Count[p][t]
		for _, a := range of.Arrays {
			list = append(list, disk.TensorInfo{Name: of.Name + "/" + a.Name, DType: a.DType, Shape: append([]int64{rows}, a.Shape[1:]...)})
		}
		if !of.KeepsIDs() {
			list = append(list, disk.TensorInfo{Name: of.Name + "/" + input.OrigID, DType: disk.Int64, Shape: []int64{rows}})
		}
	}
	return list
}

// Place is the index in features of array a of type t; that of the original
// ids is a = len(Arrays).
func (k *Kinds) Place(t, a int) int {
	for _, of := range k.List[:t] {
		a += len(of.Arrays)
		if !of.KeepsIDs() {
			a++
		}
	}
	return a
}

// Work is the number of rows that writing the features reads.
func (k *Kinds) Work() (n int64) {
	for _, of := range k.List {
		n += of.Rows * int64(len(of.Arrays))
	}
	return n
}

// Counts are sizes of what the files of one partition hold.
type Counts struct {
	Nodes, InnerNodes int64 // with and without the halo
	Edges, InnerEdges int64 // inner edges are the in-edges of inner nodes
}
