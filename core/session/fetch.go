package session

import (
	"fmt"
	"math"

	"sar/core/comm"
	"sar/core/exchange"
)

// FetchRows is a tensor of rows of any type.
type FetchRows struct {
	Data     []byte // [N, Bytes]
	N, Bytes int
}

// fetch prepares a fetch: what every rank asks of this one is known afterwards.
func (g *Graph) fetch(relation int, columns []int64, rowBytes int) (*exchange.Fetch, error) {
	rel, err := g.Relation(relation)
	if err != nil {
		return nil, err
	}
	if len(columns) > math.MaxInt32 {
		return nil, Invalid("columns has %d entries: at most %d are fetched at once", len(columns), math.MaxInt32)
	}
	for i, c := range columns {
		if c < 0 || c >= int64(rel.NumCols()) {
			return nil, Invalid("columns[%d] is %d, and this worker has %d columns (%d own rows, then boundary rows)",
				i, c, rel.NumCols(), rel.NumSrc)
		}
	}
	f, err := exchange.NewFetch(rel, pool, rowBytes, columns)
	if err != nil {
		return nil, err
	}
	train, err := g.session.Comm(Train)
	if err == nil {
		err = f.Meet(train)
	}
	if err != nil {
		f.Free()
		return nil, err
	}
	return f, nil
}

// askBytes is what a row's number and its padding add to the row in backward;
// forward refuses windows that are too small for that at once.
const askBytes = 16

// FetchForward fills out with the rows of x at columns; it returns the union of
// all ranks' flags. Collective, with as many columns as each rank likes.
func (g *Graph) FetchForward(relation int, columns []int64, flags uint16, x, out FetchRows) (uint32, error) {
	if rel, err := g.Relation(relation); err != nil {
		return 0, err
	} else if x.N != rel.NumSrc {
		return 0, Invalid("x has %d rows, and this worker has %d source nodes", x.N, rel.NumSrc)
	}
	if out.N != len(columns) || out.Bytes != x.Bytes {
		return 0, Invalid("out has %d rows of %d bytes: %d columns of x are %d rows of %d",
			out.N, out.Bytes, len(columns), len(columns), x.Bytes)
	}
	f, err := g.fetch(relation, columns, x.Bytes)
	if err != nil {
		return 0, err
	}
	defer f.Free()
	var agreed uint16
	sends := fmt.Sprintf("rows of relation %d", relation)
	err = g.run(comm.KindFetch, comm.Forward, x.Bytes+askBytes, sends, func(op *comm.Op) error {
		agreed, err = f.Forward(op, flags, x.Data, out.Data)
		return err
	})
	return uint32(agreed), err
}

// FetchBackward adds the gradients of fetched rows to gradX, which may be nil;
// float is the size of the numbers. Collective.
func (g *Graph) FetchBackward(relation int, columns []int64, float int, gradOut FetchRows, gradX *FetchRows) error {
	rel, err := g.Relation(relation)
	if err != nil {
		return err
	}
	if gradOut.N != len(columns) {
		return Invalid("grad_out has %d rows for %d columns", gradOut.N, len(columns))
	}
	var grad []byte
	if gradX != nil {
		if gradX.N != rel.NumSrc || gradX.Bytes != gradOut.Bytes {
			return Invalid("grad_x has %d rows of %d bytes, and must have %d of %d",
				gradX.N, gradX.Bytes, rel.NumSrc, gradOut.Bytes)
		}
		grad = gradX.Data
	}
	f, err := g.fetch(relation, columns, gradOut.Bytes)
	if err != nil {
		return err
	}
	defer f.Free()
	sends := fmt.Sprintf("gradients of rows of relation %d, %d bytes a number", relation, float)
	return g.run(comm.KindFetch, comm.Backward, gradOut.Bytes+askBytes, sends,
		func(op *comm.Op) error { return f.Backward(op, float, gradOut.Data, grad) })
}

// InEdges fills indptr [len(rows)+1], and where columns and edges are given,
// those of the in-edges of each row in the users' order of edges.
func (g *Graph) InEdges(relation int, rows, indptr, columns, edges []int64) error {
	rel, err := g.Relation(relation)
	if err != nil {
		return err
	}
	if len(indptr) != len(rows)+1 {
		return Invalid("indptr has %d entries for %d rows: it needs one more than there are rows", len(indptr), len(rows))
	}
	indptr[0] = 0
	for i, row := range rows {
		if row < 0 || row >= int64(rel.NumDst) {
			return Invalid("rows[%d] is %d, and this worker has %d destination nodes", i, row, rel.NumDst)
		}
		indptr[i+1] = indptr[i] + int64(rel.RowPtr.Data[row+1]-rel.RowPtr.Data[row])
	}
	if columns == nil && edges == nil {
		return nil
	}
	if n := int(indptr[len(rows)]); len(columns) != n || len(edges) != n {
		return Invalid("the rows have %d in-edges, and columns has room for %d and edges for %d", n, len(columns), len(edges))
	}
	if err := g.edgeOrder(rel); err != nil {
		return err
	}
	parts := min(len(rows), 1+len(edges)>>14)
	pool.Run(parts, func(t int) {
		for i := len(rows) * t / parts; i < len(rows)*(t+1)/parts; i++ {
			rel.InEdges(int(rows[i]), columns[indptr[i]:indptr[i+1]], edges[indptr[i]:indptr[i+1]])
		}
	})
	return nil
}

// Columns fills, for every column, the rank that owns its row and, where
// ownerRows is given, the row there; then the call is collective.
func (g *Graph) Columns(relation int, owners, ownerRows []int64) error {
	rel, err := g.Relation(relation)
	if err != nil {
		return err
	}
	for name, a := range map[string][]int64{"owner": owners, "row": ownerRows} {
		if a != nil && len(a) != rel.NumCols() {
			return Invalid("%s has %d entries for %d columns", name, len(a), rel.NumCols())
		}
	}
	if owners != nil {
		for i := range rel.NumSrc {
			owners[i] = int64(rel.Rank)
		}
		for r := 1; r < rel.Parts; r++ {
			for c := rel.Halo[r].Begin; c < rel.Halo[r].End; c++ {
				owners[c] = int64(rel.Halo[r].Peer)
			}
		}
	}
	if ownerRows == nil {
		return nil
	}
	sends := fmt.Sprintf("numbers of rows of relation %d", relation)
	return g.run(comm.KindFetch, comm.None, 4, sends,
		func(op *comm.Op) error { return exchange.OwnerRows(op, rel, ownerRows) })
}
