package topology

import (
	"encoding/binary"
	"fmt"

	"sar/core/comm"
	"sar/core/exchange"
	"sar/core/graph"
	"sar/core/mem"
)

// connect gives the owners of halo rows their send lists, and learns from the readers how
// many edges leave each own row. Two movements: 4 and 8 bytes a halo row.
func connect(c *comm.Communicator, rel *graph.Relation) error {
	total, err := c.SumInts(rel.NumEdges)
	if err != nil {
		return err
	}
	rel.NumEdgesGlobal = total[0]
	rel.Send = make([]mem.Array[int32], rel.Parts)
	halo := exchange.HaloRows(rel)
	sizes, err := exchange.AskedFor(c, func(r int) int { return halo[r] }, rel.NumSrc)
	if err != nil {
		return err
	}
	for r := 1; r < rel.Parts; r++ {
		if rel.Send[r], err = mem.Make[int32](mem.Structure, sizes[r]); err != nil {
			return err
		}
	}
	if rel.OutDegree, err = mem.Make[int64](mem.Structure, rel.NumSrc); err != nil {
		return err
	}
	if err := sendHalo(c, rel, sizes); err != nil {
		return err
	}
	for r := range rel.Halo {
		rel.Halo[r].Rows.Free()
	}
	return countOut(c, rel, sizes)
}

// sendHalo tells the owners which of their rows this worker reads.
func sendHalo(c *comm.Communicator, rel *graph.Relation, sizes []int) error {
	return records{send: exchange.HaloRows(rel), recv: sizes, size: 4,
		put: func(r, i int, dst []byte) { binary.LittleEndian.PutUint32(dst, uint32(rel.Halo[r].Rows.Data[i])) },
		get: func(r, i int, src []byte) error {
			row := int32(binary.LittleEndian.Uint32(src))
			if row < 0 || int(row) >= rel.NumSrc {
				return fmt.Errorf("rank %d asks for row %d of this rank's %d", (rel.Rank+r)%rel.Parts, row, rel.NumSrc)
			}
			rel.Send[r].Data[i] = row
			return nil
		}}.toOwners(c, comm.KindBuild)
}

// countOut adds up the edges that leave own rows, here and on the peers.
func countOut(c *comm.Communicator, rel *graph.Relation, sizes []int) error {
	ptr := rel.ColPtr.Data
	for i := range rel.OutDegree.Data {
		rel.OutDegree.Data[i] = int64(ptr[i+1] - ptr[i])
	}
	return records{send: exchange.HaloRows(rel), recv: sizes, size: 8,
		put: func(r, i int, dst []byte) {
			col := int(rel.Halo[r].Begin) + i
			binary.LittleEndian.PutUint64(dst, uint64(ptr[col+1]-ptr[col]))
		},
		get: func(r, i int, src []byte) error {
			rel.OutDegree.Data[rel.Send[r].Data[i]] += int64(binary.LittleEndian.Uint64(src))
			return nil
		}}.toOwners(c, comm.KindBuild)
}

// records are small ones of one size that travel from the readers of halo rows to their
// owners, send and recv of them in each round.
type records struct {
	send, recv []int
	size       int
	// put writes record i of round r, and get takes one. Both see them in order.
	put func(r, i int, dst []byte)
	get func(r, i int, src []byte) error
}

func (x records) toOwners(c *comm.Communicator, kind comm.Kind) error {
	op, err := c.Begin(kind, comm.Backward)
	if err != nil {
		return err
	}
	m := &exchange.Movement{
		Op: op, ToOwner: true, RowBytes: x.size, Send: x.send, Recv: x.recv,
		Produce: func(r, first, n int, dst []byte) error {
			for i := range n {
				x.put(r, first+i, dst[i*x.size:])
			}
			return nil
		},
		Consume: func(r, first, n int, src []byte) error {
			for i := range n {
				if err := x.get(r, first+i, src[i*x.size:]); err != nil {
					return err
				}
			}
			return nil
		},
	}
	_, err = m.Move(c.Rank(), c.World())
	return op.End(err)
}
