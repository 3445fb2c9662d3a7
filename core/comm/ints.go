package comm

import (
	"slices"

	"sar/core/internal/view"
)

// AllGatherInts returns everyone's values, by rank; lengths may differ.
func (c *Communicator) AllGatherInts(values ...int64) ([][]int64, error) {
	all, err := c.AllGather(view.Bytes(values))
	if err != nil {
		return nil, err
	}
	out := make([][]int64, len(all))
	for r, b := range all {
		out[r] = make([]int64, len(b)/8)
		copy(view.Bytes(out[r]), b)
	}
	return out, nil
}

// AllToAllInts sends send[q] to rank q and returns what comes from each. All are of one length.
func (c *Communicator) AllToAllInts(send [][]int64) ([][]int64, error) {
	out, in, recv := make([][]byte, len(send)), make([][]byte, len(send)), make([][]int64, len(send))
	for q, values := range send {
		recv[q] = make([]int64, len(values))
		out[q], in[q] = view.Bytes(values), view.Bytes(recv[q])
	}
	return recv, c.AllToAll(out, in)
}

// SumInts returns the sum of each value over all ranks.
func (c *Communicator) SumInts(values ...int64) ([]int64, error) {
	sums := slices.Clone(values)
	return sums, c.AllReduce(view.Bytes(sums), Int64, Sum)
}
