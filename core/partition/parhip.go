package partition

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"sar/core/internal/view"
	"sar/core/mem"
)

// ParHIP's binary format, as KaMinPar reads it: three numbers, offsets of rows in
// bytes of the file (u64 [nodes + 1]), neighbours, weights of nodes. The first number
// has a bit for each thing that is narrower than 8 bytes or missing.
const (
	parhipHeader      = 24
	parhipNoEdgeSizes = 1 << 0
	parhipNoNodeSizes = 1 << 1
	parhipNodes32     = 1 << 3
	parhipNodeSizes32 = 1 << 4
)

// Subgraph is the nodes of one part, numbered in ascending order, and the edges among them.
type Subgraph struct {
	Assignment []int32
	Part       int32
}

// WriteParHIP writes a graph, or the part of it where that is not nil, in ParHIP's
// format, and returns its numbers of nodes and of entries: every edge counts twice.
// weights, one for each node of the whole graph, may be nil. For a part it holds 4 bytes a node.
func WriteParHIP(file *os.File, graph Neighbours, weights []int32, part *Subgraph) (nodes, entries int64, err error) {
	nodes = graph.NumNodes()
	number := mem.Array[int32]{} // of the nodes of the part in it, -1 elsewhere
	if part != nil {
		if number, err = mem.Make[int32](mem.Scratch, int(nodes)); err != nil {
			return 0, 0, err
		}
		defer number.Free()
		nodes = 0
		for v, p := range part.Assignment {
			number.Data[v] = -1
			if p == part.Part {
				number.Data[v] = int32(nodes)
				nodes++
			}
		}
	}
	base := parhipHeader + 8*(nodes+1)
	offsets := bufio.NewWriterSize(io.NewOffsetWriter(file, parhipHeader), 1<<20)
	neighbours := bufio.NewWriterSize(io.NewOffsetWriter(file, base), 1<<20)
	put := func(to *bufio.Writer, v uint32) { // an error stays with the writer
		_, _ = to.Write(binary.LittleEndian.AppendUint32(to.AvailableBuffer(), v))
	}
	offset := func() error {
		_, err := offsets.Write(binary.LittleEndian.AppendUint64(offsets.AvailableBuffer(), uint64(base+4*entries)))
		return err
	}
	err = graph.Rows(func(first int64, ptr []int64, adj []int32) error {
		for i, end := range ptr[1:] {
			if part != nil && number.Data[first+int64(i)] < 0 {
				continue
			}
			if err := offset(); err != nil {
				return err
			}
			for _, u := range adj[ptr[i]:end] {
				if part != nil {
					if u = number.Data[u]; u < 0 {
						continue
					}
				}
				put(neighbours, uint32(u))
				entries++
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	if err = offset(); err != nil {
		return 0, 0, err
	}
	version := uint64(parhipNoEdgeSizes | parhipNodes32 | parhipNodeSizes32)
	if weights == nil {
		version |= parhipNoNodeSizes
	}
	for v, w := range weights { // they follow the neighbours
		if part == nil || number.Data[v] >= 0 {
			put(neighbours, uint32(w))
		}
	}
	if err = offsets.Flush(); err == nil {
		err = neighbours.Flush()
	}
	if err != nil {
		return 0, 0, err
	}
	var header [parhipHeader]byte
	for i, v := range []uint64{version, uint64(nodes), uint64(entries)} {
		binary.LittleEndian.PutUint64(header[8*i:], v)
	}
	_, err = file.WriteAt(header[:], 0)
	return nodes, entries, err
}

// parhip is a file that WriteParHIP wrote.
type parhip struct {
	file           io.ReaderAt
	nodes, entries int64
}

func (p parhip) NumNodes() int64   { return p.nodes }
func (p parhip) NumEntries() int64 { return p.entries }
func (p parhip) base() int64       { return parhipHeader + 8*(p.nodes+1) }

// ReadOffsets implements CSR.
func (p parhip) ReadOffsets(first int64, dst []int64) error {
	if _, err := p.file.ReadAt(view.Bytes(dst), parhipHeader+8*first); err != nil {
		return fmt.Errorf("reading rows of the graph: %w", err)
	}
	for i := range dst {
		dst[i] = (dst[i] - p.base()) / 4
	}
	return nil
}

// ReadColumns implements CSR.
func (p parhip) ReadColumns(first int64, dst []int32) error {
	if _, err := p.file.ReadAt(view.Bytes(dst), p.base()+4*first); err != nil {
		return fmt.Errorf("reading neighbours of the graph: %w", err)
	}
	return nil
}

// File makes any graph undirected and writes it to file, in ParHIP's format. What is
// returned reads the file.
func (s Sorting) File(edges Edges, file *os.File) (Neighbours, error) {
	g, err := s.Undirect(edges)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	nodes, entries, err := WriteParHIP(file, g, nil, nil)
	if err != nil {
		return nil, err
	}
	return Symmetric(parhip{file, nodes, entries}), nil
}
