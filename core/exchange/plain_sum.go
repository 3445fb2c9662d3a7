package exchange

import (
	"sync"

	"sar/core/comm"
	"sar/core/expr"
	"sar/core/internal/view"
	"sar/core/kernel"
	"sar/core/mem"
)

// plainSum is a program that is sum or mean of rows of sources, or of such rows times weights of edges:
//
//	out[i, h, :] = Σ_{k: j→i} w[k, h] · u[j, h, :]   (divided by the in-degree of i for mean)
//
// u is [NumSrc, heads, d], out [NumDst, heads, d], w [NumEdges, heads] in the
// users' order of edges or nil, with width = heads·d.
type plainSum[T kernel.Float] struct {
	*expr.Run[T]
	width, heads int
	mean         bool
	rows         int // the operand that is u
	u            source[T]
	half         bool // rows of u are bfloat16
	weights      int  // the one that is w; -1: none
	w            []T
}

// plainSumOf is such a run, nil where it is another.
func plainSumOf[T expr.Float](x *expr.Run[T]) *plainSum[T] {
	sum, ok := x.Program.PlainSum()
	if !ok {
		return nil
	}
	p := x.Program
	a := &plainSum[T]{Run: x, width: p.Width(), heads: sum.Heads, mean: p.Reduce == expr.Mean, rows: sum.Rows,
		weights: sum.Weights}
	if sum.Weights >= 0 {
		a.w = x.Operands[sum.Weights]
	}
	if a.half = p.Operands[a.rows].Storage == expr.BFloat16; a.half {
		a.u.half = view.Numbers[kernel.BFloat16](x.Stored[a.rows])
	} else {
		a.u.x = x.Operands[a.rows]
	}
	return a
}

// source is rows that a product reads: numbers of T, or bfloat16.
type source[T kernel.Float] struct {
	x    []T
	half []kernel.BFloat16
}

// rowsIn are the rows of a frame.
func rowsIn[T kernel.Float](frame []byte, half bool) source[T] {
	if half {
		return source[T]{half: view.Numbers[kernel.BFloat16](frame)}
	}
	return source[T]{x: view.Numbers[T](frame)}
}

// received is boundary rows of u in a frame.
func (a *plainSum[T]) received(frame []byte) source[T] { return rowsIn[T](frame, a.half) }

// backward computes the gradients of a plan, one after the other.
func (a *plainSum[T]) backward(plan *expr.GradientPlan, c Covering, start Start) error {
	if plan.Operands>>a.rows&1 != 0 {
		back := func(op *comm.Op) error { return a.backwardU(op, a.Grads[a.rows], c) }
		err := start(comm.KindAggregate, comm.Backward, c.named(sourceRows), 1<<a.rows, a.sumBytes(), back)
		if err != nil {
			return err
		}
	}
	if a.weights < 0 || plan.Operands>>a.weights&1 == 0 {
		return nil
	}
	back := func(op *comm.Op) error { return a.backwardE(op, a.Grad, a.Grads[a.weights]) }
	return start(comm.KindSDDMM, comm.Backward, "rows for gradients of edges", 1<<a.weights, a.rowBytes(), back)
}

// forward computes out. Remote rows, and sums of them, are read once, in the order p-1, p-2, …,
// and added to out from the receive buffer. Wire: width numbers per boundary row, as they are stored, or per sum.
func (a *plainSum[T]) forward(op *comm.Op, flags uint16, out []T, c Covering) (uint16, error) {
	rel := a.Rel
	csr := a.csr()
	if rel.Parts == 1 {
		return flags, a.whole(csr, out)
	}
	cursor, err := newCursor(rel)
	if err != nil {
		return 0, err
	}
	defer cursor.Free()
	scale, err := a.inverseDegrees()
	if err != nil {
		return 0, err
	}
	defer scale.Free()
	// Rows are divided by their degrees when their last slot was read. Scattered
	// chunks do not know when that is, and sums come besides: then all are divided at the end.
	m := a.pull(op, flags)
	scatter, post := sparseChunks(rel, op, a.rowBytes()), scale.Data
	if m.Send, m.Recv = c.rows(rel); c.Cover != nil {
		m.Ahead = a.partialSums(c, out)
	}
	late := scatter || c.Cover != nil
	if late {
		post = nil
	}
	m.Local = func() error {
		own := kernel.Window{Cursor: &cursor.Cursor, End: int32(rel.NumSrc), First: true}
		kernel.SpMMWindow(a.Pool, out, a.product(csr, a.u, nil, post), own)
		return nil
	}
	m.Consume = func(r, first, n int, src []byte) error {
		begin := column(rel, r, first)
		end, x := begin+int32(n), a.received(src)
		if scatter {
			columns := kernel.Columns{
				Ptr: rel.ColPtr.Data, Rows: rel.Row.Data, Edge: rel.ColEdge.Data, Begin: begin, End: end,
			}
			kernel.SpMMScatter(a.Pool, out, a.product(csr, x, nil, nil), columns)
			return nil
		}
		window := kernel.Window{Cursor: &cursor.Cursor, Begin: begin, End: end}
		kernel.SpMMWindow(a.Pool, out, a.product(inSequence(csr), x, nil, post), window)
		return nil
	}
	agreed, err := m.Move(rel.Rank, rel.Parts)
	if err != nil {
		return 0, err
	}
	if a.mean && late {
		kernel.ScaleRows(a.Pool, out, a.width, scale.Data)
	}
	return agreed, nil
}

// whole is forward where one worker has everything.
func (a *plainSum[T]) whole(csr kernel.CSR, out []T) error {
	scale, err := a.inverseDegrees()
	if err != nil {
		return err
	}
	defer scale.Free()
	a.all(out, a.HalfOut, a.product(csr, a.u, nil, scale.Data))
	return nil
}

// RoundsSums tells whether a run rounds its result itself where HalfOut is given.
func RoundsSums[T kernel.Float](x *expr.Run[T]) bool {
	_, plain := x.Program.PlainSum()
	return plain && x.Rel.Parts == 1
}

// RoundsGradient tells whether a run rounds the gradient of an operand itself where HalfGrads has a place for it.
func RoundsGradient[T kernel.Float](x *expr.Run[T], operand int) bool {
	return x.Rel.Parts == 1 && x.Program.Operands[operand].Side == expr.U
}

// all computes a whole product, for which no peer is needed, into y, or rounded into half.
func (a *plainSum[T]) all(y []T, half []kernel.BFloat16, m kernel.Product[T]) {
	if half != nil {
		kernel.SpMMHalf(a.Pool, half, m)
		return
	}
	kernel.SpMM(a.Pool, y, m)
}

// product is that of a matrix with rows x, of which scale are coefficients (nil: 1); post are those
// of the result.
func (a *plainSum[T]) product(m kernel.CSR, rows source[T], scale, post []T) kernel.Product[T] {
	return kernel.Product[T]{
		A: m, X: rows.x, Half: rows.half, Width: a.width, W: a.w, Heads: a.heads, Scale: scale, Post: post,
	}
}

// backwardU computes gradU = Aᵀ·gradOut. The part of a boundary row is computed
// straight into the send buffer and returns to the row's owner, who adds what
// arrives in the order p+1, p+2, …. gradU may be nil: this rank then only serves
// its peers. Nothing is fetched again. Wire: width numbers per boundary row.
func (a *plainSum[T]) backwardU(op *comm.Op, gradU []T, c Covering) error {
	rel, gradOut := a.Rel, source[T]{a.Grad, a.HalfGrad}
	scale, err := a.inverseDegrees()
	if err != nil {
		return err
	}
	defer scale.Free()
	csc := kernel.CSR{Ptr32: rel.ColPtr.Data, Col: rel.Row.Data, Edge: rel.ColEdge.Data}
	own := csc
	own.Ptr32, own.Order = csc.Ptr32[:rel.NumSrc+1], kernel.Order{Rows: rel.Order.Data, Before32: rel.ColsBefore.Data}
	var adding sync.Mutex // to gradU: what the first peer sends and own rows
	m := &Movement{
		Op: op, ToOwner: true, RowBytes: a.sumBytes(),
		Produce: func(r, first, n int, dst []byte) error {
			begin := int(rel.Halo[r].Begin) + first
			kernel.SpMMRows(a.Pool, view.Numbers[T](dst), a.product(csc, gradOut, scale.Data, nil), begin, begin+n)
			return nil
		},
		Consume: func(r, first, n int, src []byte) error {
			if gradU != nil {
				adding.Lock()
				defer adding.Unlock()
				y := kernel.RowsOf(gradU, a.width, rel.Send[r].Data[first:first+n])
				kernel.AddRows(a.Pool, n, y, kernel.RowsOf(view.Numbers[T](src), a.width, nil))
			}
			return nil
		},
	}
	m.Recv, m.Send = c.rows(rel)
	switch {
	case c.Cover != nil:
		// What comes is added to what own rows gave, peer after peer.
		m.Ahead = a.gradientRows(c, gradU)
		m.Local = func() error {
			if gradU != nil {
				kernel.SpMM(a.Pool, gradU, a.product(own, gradOut, scale.Data, nil))
			}
			return nil
		}
	case gradU != nil || a.HalfGradOf(a.rows) != nil:
		o, err := a.newOwnProduct(gradU, a.product(own, gradOut, scale.Data, nil), m.Recv)
		if err != nil {
			return err
		}
		defer o.free()
		m.Passes, m.Until = o.groups, o.until
		m.Own = Parts{N: o.product.Parts, Needs: o.needs, Run: func(i int) {
			adding.Lock()
			defer adding.Unlock()
			o.product.Run(i)
		}}
	}
	_, err = m.Move(rel.Rank, rel.Parts)
	return err
}

// backwardE computes the gradient of the weights,
//
//	gradE[k, h] = Σ_d u[j, h, d] · gradOut[i, h, d]   for edge k: j→i,
//
// by fetching the boundary rows of u again. gradE may be nil: this rank then
// only serves its peers. Wire: width numbers per boundary row.
func (a *plainSum[T]) backwardE(op *comm.Op, gradOut, gradE []T) error {
	rel := a.Rel
	csr := a.csr()
	cursor, err := newCursor(rel)
	if err != nil {
		return err
	}
	defer cursor.Free()
	sddmm := func(x source[T], csr kernel.CSR, begin, end int32) error {
		if gradE != nil {
			window := kernel.Window{Cursor: &cursor.Cursor, Begin: begin, End: end}
			kernel.SDDMMWindow(a.Pool, gradE, gradOut, a.product(csr, x, nil, nil), window)
		}
		return nil
	}
	m := a.pull(op, 0)
	m.Local = func() error { return sddmm(a.u, csr, 0, int32(rel.NumSrc)) }
	m.Consume = func(r, first, n int, src []byte) error {
		begin := column(rel, r, first)
		return sddmm(a.received(src), inSequence(csr), begin, begin+int32(n))
	}
	if _, err := m.Move(rel.Rank, rel.Parts); err != nil || gradE == nil || !a.mean {
		return err
	}
	a.divideEdges(gradE)
	return nil
}

// pull is the movement that brings boundary rows of u to whoever reads them.
func (a *plainSum[T]) pull(op *comm.Op, flags uint16) *Movement {
	rel := a.Rel
	rows, size := a.Bytes(a.rows)
	return &Movement{
		Op: op, Flags: flags, RowBytes: a.rowBytes(),
		Send: SendRows(rel), Recv: HaloRows(rel),
		Produce: func(r, first, n int, dst []byte) error {
			gather(a.Pool, dst, rows, size, rel.Send[r].Data[first:first+n])
			return nil
		},
	}
}

// gather: dst[i,:] = src[idx[i],:]
func gather[T any](p *kernel.Pool, dst, src []T, width int, idx []int32) {
	kernel.CopyRows(p, len(idx), kernel.RowsOf(dst, width, nil), kernel.RowsOf(src, width, idx))
}

func (a *plainSum[T]) csr() kernel.CSR {
	rel := a.Rel
	return kernel.CSR{
		Ptr32: rel.RowPtr.Data, Col: rel.Col.Data, Edge: rel.RowEdge.Data,
		Order: kernel.Order{Rows: rel.Order.Data, Before32: rel.RowsBefore.Data},
	}
}

// inSequence is the matrix for windows of boundary rows: those are few and in
// the cache, so that own rows are best met in sequence.
func inSequence(a kernel.CSR) kernel.CSR {
	a.Order = kernel.Order{}
	return a
}

// rowBytes is the size of a row of u on the wire, sumBytes that of a sum of gradients.
func (a *plainSum[T]) rowBytes() int {
	_, size := a.Bytes(a.rows)
	return size
}

func (a *plainSum[T]) sumBytes() int { return a.width * view.Size[T]() }

// inverseDegrees is 1/in-degree per own row for means and nothing otherwise.
func (a *plainSum[T]) inverseDegrees() (mem.Array[T], error) {
	if !a.mean {
		return mem.Array[T]{}, nil
	}
	inv, err := mem.Make[T](mem.Scratch, a.Rel.NumDst)
	ptr := a.Rel.RowPtr.Data
	for i := range inv.Data {
		inv.Data[i] = 1 / T(max(1, ptr[i+1]-ptr[i]))
	}
	return inv, err
}

// divideEdges divides gradE[k, :] by the in-degree of edge k's destination.
func (a *plainSum[T]) divideEdges(gradE []T) {
	ptr, edge := a.Rel.RowPtr.Data, a.Rel.RowEdge.Data
	const block = 1024 // rows of a task
	n := a.Rel.NumDst
	a.Pool.Run((n+block-1)/block, func(t int) {
		for i := t * block; i < min(n, (t+1)*block); i++ {
			inv := 1 / T(max(1, ptr[i+1]-ptr[i]))
			for k := ptr[i]; k < ptr[i+1]; k++ {
				at := int(edge[k]) * a.heads
				for h := range a.heads {
					gradE[at+h] *= inv
				}
			}
		}
	})
}
