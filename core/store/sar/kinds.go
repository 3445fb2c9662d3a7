package sar

import (
	"sort"

	"sar/core/store/disk"
	"sar/core/store/input"
)

// kinds are the node types, or the relations, of a graph that is written, and
// how their rows fall to partitions.
type kinds struct {
	list  []input.Table
	first []int64   // [types + 1] first original id of each
	count [][]int64 // [partition][type]
}

func newKinds(list []input.Table, parts int) kinds {
	k := kinds{list: list, first: make([]int64, len(list)+1), count: make([][]int64, parts)}
	for t, of := range list {
		k.first[t+1] = k.first[t] + of.Rows
	}
	for p := range k.count {
		k.count[p] = make([]int64, len(list))
	}
	return k
}

// of is the type of an original id.
func (k *kinds) of(id int64) int {
	return sort.Search(len(k.list), func(t int) bool { return k.first[t+1] > id })
}

// maps are what the JSON file says of types: their numbers, and the new ids of each in each partition: partition by
// partition, in each type by type, as DGL numbers them.
func (k *kinds) maps() (ranges disk.Object[[][2]int64], numbers disk.Object[int]) {
	for t, of := range k.list {
		ranges.Set(of.Name, nil)
		numbers.Set(of.Name, t)
	}
	var at int64
	for _, count := range k.count {
		for t, n := range count {
			ranges[t].Value = append(ranges[t].Value, [2]int64{at, at + n})
			at += n
		}
	}
	return ranges, numbers
}

// work is the number of rows that writing the features reads.
func (k *kinds) work() (n int64) {
	for _, of := range k.list {
		n += of.Rows * int64(len(of.Arrays))
	}
	return n
}
