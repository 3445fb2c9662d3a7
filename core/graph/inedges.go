package graph

import "slices"

// InEdges fills columns and edges with the in-edges of a row, ascending by the
// position of the edge; both have room for all of them. The relation has its
// edge order.
func (r *Structure) InEdges(row int, columns, edges []int64) {
	begin, end := r.RowPtr.Data[row], r.RowPtr.Data[row+1]
	for i, k := 0, begin; k < end; i, k = i+1, k+1 {
		edges[i] = int64(r.RowEdge.Data[k])<<32 | int64(k-begin)
	}
	edges = edges[:end-begin]
	slices.Sort(edges)
	for i, e := range edges {
		columns[i], edges[i] = int64(r.Col.Data[int64(begin)+e&(1<<32-1)]), e>>32
	}
}
