package partition

import "fmt"

// CountEntries is how many neighbours all nodes have together. It reads the graph.
func CountEntries(graph Neighbours) (n int64, err error) {
	err = graph.Rows(func(_ int64, ptr []int64, _ []int32) error {
		n += ptr[len(ptr)-1]
		return nil
	})
	return n, err
}

// FillAdjacency writes a graph into the caller's arrays, as METIS wants it, xadj [nodes + 1] and
// adjncy [CountEntries]: the neighbours of a are adjncy[xadj[a]:xadj[a+1]], ascending.
func FillAdjacency[I int32 | int64](graph Neighbours, xadj []int64, adjncy []I) error {
	if n := graph.NumNodes(); int64(len(xadj)) != n+1 {
		return fmt.Errorf("xadj has %d numbers for %d nodes, expected %d", len(xadj), n, n+1)
	}
	xadj[0] = 0
	at := int64(0)
	err := graph.Rows(func(first int64, ptr []int64, adj []int32) error {
		if n := ptr[len(ptr)-1]; n > int64(len(adjncy))-at {
			return errChanged
		}
		for i, end := range ptr[1:] {
			xadj[first+int64(i)+1] = at + end
		}
		for _, u := range adj {
			adjncy[at] = I(u)
			at++
		}
		return nil
	})
	if err == nil && at != int64(len(adjncy)) {
		err = errChanged
	}
	return err
}
