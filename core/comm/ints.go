package comm

import "encoding/binary"

// AllGatherInts returns everyone's values, by rank; lengths may differ.
func (c *Communicator) AllGatherInts(values ...int64) ([][]int64, error) {
	all, err := c.AllGather(intBytes(values))
	if err != nil {
		return nil, err
	}
	return everyInt(all), nil
}

// AllToAllInts sends send[q] to rank q and returns what comes from each. All are of one length.
func (c *Communicator) AllToAllInts(send [][]int64) ([][]int64, error) {
	out, in := make([][]byte, len(send)), make([][]byte, len(send))
	for q, values := range send {
		out[q], in[q] = intBytes(values), make([]byte, 8*len(values))
	}
	if err := c.AllToAll(out, in); err != nil {
		return nil, err
	}
	return everyInt(in), nil
}

// SumInts returns the sum of each value over all ranks.
func (c *Communicator) SumInts(values ...int64) ([]int64, error) {
	buf := intBytes(values)
	if err := c.AllReduce(buf, Int64, Sum); err != nil {
		return nil, err
	}
	return ints(buf), nil
}

func intBytes(values []int64) []byte {
	b := make([]byte, 0, 8*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func ints(b []byte) []int64 {
	values := make([]int64, len(b)/8)
	for i := range values {
		values[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return values
}

func everyInt(all [][]byte) [][]int64 {
	out := make([][]int64, len(all))
	for r, b := range all {
		out[r] = ints(b)
	}
	return out
}
