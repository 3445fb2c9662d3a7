package exchange

import (
	"fmt"
	"math"
	"sort"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/internal/view"
	"sar/core/kernel"
	"sar/core/mem"
)

// Fetch reads rows of a tensor by the columns that a worker asks for, as many
// and in whatever order it likes, and returns their gradients to the owners.
type Fetch struct {
	Rel     *graph.Relation
	Pool    *kernel.Pool
	Bytes   int     // of a row
	Columns []int64 // below NumCols; one may occur twice

	order mem.Array[int32] // places in Columns, own columns first, then by Halo
	begin []int            // of each Halo's part of order; [0] of own columns, [P] the end
	given []int            // how many rows peer Rank+r asks for
}

// NewFetch sorts what is asked for by owner. Free it. Memory: 4 bytes a column.
func NewFetch(rel *graph.Relation, pool *kernel.Pool, rowBytes int, columns []int64) (*Fetch, error) {
	f := &Fetch{Rel: rel, Pool: pool, Bytes: rowBytes, Columns: columns, begin: make([]int, rel.Parts+1)}
	for _, c := range columns {
		f.begin[f.owner(c)+1]++
	}
	for r := range rel.Parts {
		f.begin[r+1] += f.begin[r]
	}
	var err error
	if f.order, err = mem.Make[int32](mem.Scratch, len(columns)); err != nil {
		return nil, err
	}
	next := append([]int(nil), f.begin...)
	for i, c := range columns {
		r := f.owner(c)
		f.order.Data[next[r]] = int32(i)
		next[r]++
	}
	return f, nil
}

// owner is the r of the Halo that column c belongs to, 0 for own columns.
func (f *Fetch) owner(c int64) int {
	if c < int64(f.Rel.NumSrc) {
		return 0
	}
	return 1 + sort.Search(f.Rel.Parts-2, func(k int) bool { return c < int64(f.Rel.Halo[k+1].End) })
}

func (f *Fetch) Free() { f.order.Free() }

// Asked is how many rows this worker asks of peer Rank-r.
func (f *Fetch) Asked(r int) int { return f.begin[r+1] - f.begin[r] }

// Meet learns how many rows each peer asks for. Collective.
func (f *Fetch) Meet(c *comm.Communicator) (err error) {
	if f.Rel.Parts > 1 {
		f.given, err = AskedFor(c, f.Asked, math.MaxInt32)
	}
	return err
}

// AskedFor tells peer Rank-r that this worker asks it for ask(r) rows, and learns how many
// rows, at most most, peer Rank+r asks this worker for, by round. Collective.
func AskedFor(c *comm.Communicator, ask func(r int) int, most int) ([]int, error) {
	p, rank := c.World(), c.Rank()
	asks := make([][]int64, p)
	asks[rank] = []int64{0}
	for r := 1; r < p; r++ {
		asks[(rank-r+p)%p] = []int64{int64(ask(r))}
	}
	asked, err := c.AllToAllInts(asks)
	if err != nil {
		return nil, err
	}
	given := make([]int, p)
	for r := 1; r < p; r++ {
		q := (rank + r) % p
		n := asked[q][0]
		if n < 0 || n > int64(most) {
			return nil, fmt.Errorf("rank %d asks for %d rows of this rank's %d", q, n, most)
		}
		given[r] = int(n)
	}
	return given, nil
}

// places are the places in Columns of rows [first, first+n) of those asked of peer Rank-r.
func (f *Fetch) places(r, first, n int) []int32 {
	return f.order.Data[f.begin[r]+first:][:n]
}

// ask writes numbers of boundary rows, as the peer numbers them in its send list.
func (f *Fetch) ask(r, first, n int, dst []int32) {
	for i, place := range f.places(r, first, n) {
		dst[i] = int32(f.Columns[place] - int64(f.Rel.Halo[r].Begin))
	}
}

// asked turns what peer Rank+r wrote into own rows.
func (f *Fetch) asked(r int, numbers, rows []int32) error {
	list := f.Rel.Send[r].Data
	for i, k := range numbers {
		if k < 0 || int(k) >= len(list) {
			return fmt.Errorf("rank %d asks for boundary row %d of %d", (f.Rel.Rank+r)%f.Rel.Parts, k, len(list))
		}
		rows[i] = list[k]
	}
	return nil
}

const askBytes = 4

// Forward fills out [len(Columns), Bytes] with the rows of x [NumSrc, Bytes].
// Numbers of rows travel first and the rows come back, chunk by chunk. It
// returns the union of everyone's flags. Wire: 4 + Bytes per row asked of a peer.
func (f *Fetch) Forward(op *comm.Op, flags uint16, x, out []byte) (uint16, error) {
	rel := f.Rel
	m := &RoundTrip{Op: op, Flags: flags, RowBytes: askBytes, ReplyBytes: f.Bytes}
	m.Send, m.Recv = make([]int, rel.Parts), make([]int, rel.Parts)
	for r := 1; r < rel.Parts; r++ { // in round r I ask peer Rank+r, and Rank-r asks me
		m.Send[r], m.Recv[r] = f.Asked(rel.Parts-r), f.given[rel.Parts-r]
	}
	rows := make([]int32, min(m.RowsPerFrame(), largest(m.Recv)))
	m.Produce = func(r, first, n int, dst []byte) error {
		f.ask(rel.Parts-r, first, n, view.Numbers[int32](dst))
		return nil
	}
	m.Local = func() error {
		f.own(func(rows, places []int32) {
			kernel.CopyRows(f.Pool, len(rows), f.rows(out, places), f.rows(x, rows))
		})
		return nil
	}
	m.Compute = func(r, first, n int, src, reply []byte) error {
		if err := f.asked(rel.Parts-r, view.Numbers[int32](src), rows); err != nil {
			return err
		}
		gather(f.Pool, reply, x, f.Bytes, rows[:n])
		return nil
	}
	m.Take = func(r, first, n int, src []byte) error {
		kernel.CopyRows(f.Pool, n, f.rows(out, f.places(rel.Parts-r, first, n)), f.rows(src, nil))
		return nil
	}
	return m.Move(rel.Rank, rel.Parts)
}

// rows is rows of data.
func (f *Fetch) rows(data []byte, index []int32) kernel.Rows[byte] {
	return kernel.RowsOf(data, f.Bytes, index)
}

// own calls visit with own rows that are asked for and their places in Columns, some at a time.
func (f *Fetch) own(visit func(rows, places []int32)) {
	const most = 1 << 14
	places := f.places(0, 0, f.Asked(0))
	rows := make([]int32, min(most, len(places)))
	for len(places) > 0 {
		n := min(most, len(places))
		for i, place := range places[:n] {
			rows[i] = int32(f.Columns[place])
		}
		visit(rows[:n], places[:n])
		places = places[n:]
	}
}

func largest(n []int) (most int) {
	for _, k := range n {
		most = max(most, k)
	}
	return most
}

// Backward adds the gradients of fetched rows, gradOut [len(Columns), Bytes],
// to the rows they are of: own ones first, then peer by peer, each in the order
// in which it asked. gradX [NumSrc, Bytes] may be nil: this rank then only
// serves its peers. float is the size of the numbers. Wire: as Forward, padded to 8.
func (f *Fetch) Backward(op *comm.Op, float int, gradOut, gradX []byte) error {
	rel := f.Rel
	offsets, size := layout([]int{askBytes, f.Bytes})
	m := &Movement{Op: op, ToOwner: true, RowBytes: size, Send: make([]int, rel.Parts), Recv: make([]int, rel.Parts)}
	for r := 1; r < rel.Parts; r++ {
		m.Send[r], m.Recv[r] = f.Asked(r), f.given[r]
	}
	rows := make([]int32, min(m.RowsPerFrame(), largest(m.Recv)))
	m.Produce = func(r, first, n int, dst []byte) error {
		f.ask(r, first, n, view.Numbers[int32](dst[:n*askBytes]))
		gather(f.Pool, dst[n*offsets[1]:], gradOut, f.Bytes, f.places(r, first, n))
		return nil
	}
	m.Local = func() error {
		f.own(func(rows, places []int32) { f.add(float, gradX, f.rows(gradOut, places), rows) })
		return nil
	}
	m.Consume = func(r, first, n int, src []byte) error {
		if err := f.asked(r, view.Numbers[int32](src[:n*askBytes]), rows); err != nil {
			return err
		}
		f.add(float, gradX, f.rows(src[n*offsets[1]:], nil), rows[:n])
		return nil
	}
	_, err := m.Move(rel.Rank, rel.Parts)
	return err
}

// add adds rows of x to rows of y, which may occur more than once.
func (f *Fetch) add(float int, y []byte, x kernel.Rows[byte], rows []int32) {
	if y != nil && len(rows) > 0 && f.Bytes > 0 {
		addRows(f.Pool, float, len(rows), f.rows(y, rows), x, f.Rel.NumSrc)
	}
}

// OwnerRows fills out, for every boundary column, with the row of its owner;
// own columns are rows already. Wire: 4 bytes a boundary row.
func OwnerRows(op *comm.Op, rel *graph.Relation, out []int64) error {
	for i := range rel.NumSrc {
		out[i] = int64(i)
	}
	m := &Movement{
		Op: op, RowBytes: askBytes, Send: SendRows(rel), Recv: HaloRows(rel),
		Produce: func(r, first, n int, dst []byte) error {
			copy(view.Numbers[int32](dst), rel.Send[r].Data[first:first+n])
			return nil
		},
		Consume: func(r, first, n int, src []byte) error {
			for i, row := range view.Numbers[int32](src) {
				out[int(rel.Halo[r].Begin)+first+i] = int64(row)
			}
			return nil
		},
	}
	_, err := m.Move(rel.Rank, rel.Parts)
	return err
}
