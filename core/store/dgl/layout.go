package dgl

import (
	"encoding/binary"
	"os"

	"sar/core/graph"
	"sar/core/internal/dtypes"
	"sar/core/store/disk"
)

// create makes a file of the layout's size and writes what is known of it.
func (l *layout) create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o664)
	if err != nil {
		return nil, err
	}
	for _, p := range l.pieces {
		if err == nil {
			_, err = f.WriteAt(p.bytes, p.off)
		}
	}
	if err == nil {
		err = f.Truncate(l.size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// layout lays a file out: bytes that are known now, and regions whose data are
// written later, each at its place.
type layout struct {
	pieces []piece
	size   int64
}

type piece struct {
	off   int64
	bytes []byte
}

func (l *layout) put(b []byte) {
	if n := len(l.pieces); n > 0 && l.pieces[n-1].off+int64(len(l.pieces[n-1].bytes)) == l.size {
		l.pieces[n-1].bytes = append(l.pieces[n-1].bytes, b...)
	} else {
		l.pieces = append(l.pieces, piece{l.size, append([]byte(nil), b...)})
	}
	l.size += int64(len(b))
}

func (l *layout) u64(v ...uint64) {
	for _, x := range v {
		l.put(binary.LittleEndian.AppendUint64(nil, x))
	}
}

func (l *layout) u32(v uint32) { l.put(binary.LittleEndian.AppendUint32(nil, v)) }

func (l *layout) str(s string) {
	l.u64(uint64(len(s)))
	l.put([]byte(s))
}

// skip leaves room for data and returns where.
func (l *layout) skip(n int64) int64 {
	at := l.size
	l.size += n
	return at
}

// ndarray puts the header of an array, leaves room for its data, and returns
// where. Bool is written as uint8, as DGL does.
func (l *layout) ndarray(d dtypes.Type, shape ...int64) int64 {
	if d == dtypes.Bool {
		d = dtypes.Uint8
	}
	l.u64(magicArray, 0)
	l.u32(deviceCPU)
	l.u32(0)
	l.u32(uint32(len(shape)))
	code, bits := d.DLPack()
	l.put([]byte{code, bits, 1, 0})
	bytes := int64(d.Size())
	for _, n := range shape {
		l.u64(uint64(n))
		bytes *= n
	}
	l.u64(uint64(bytes))
	return l.skip(bytes)
}

// ints puts an array of int64 with its data.
func (l *layout) ints(v ...int64) {
	l.ndarray(dtypes.Int64, int64(len(v)))
	l.size -= 8 * int64(len(v))
	for _, x := range v {
		l.u64(uint64(x))
	}
}

// tensors lays out a file of save_tensors and returns where the data of each go.
func (l *layout) tensors(list []disk.TensorInfo) []int64 {
	l.u64(magicTensors, uint64(len(list)), uint64(len(list)))
	at := make([]int64, len(list))
	for i, t := range list {
		l.str(t.Name)
		at[i] = l.ndarray(t.DType, t.Shape...)
	}
	return at
}

// metagraph puts the graph of types: one node type, one relation.
func (l *layout) metagraph() {
	l.u64(magicImmGraph, magicCSR, 1, 1)
	l.ints(0, 1)
	l.ints(0)
	l.ints(0)
	l.put([]byte{0})
}

// graphPlaces says where the data of a partition's graph file go.
type graphPlaces struct {
	src, dst                  int64
	nodeID, innerNode, partID int64
	edgeID, innerEdge         int64
	nodeType, edgeType        int64 // where there are several types
}

const allFormats = fmtCOO | fmtCSR | fmtCSC

// partition lays out the graph file of a partition: COO, as DGL saves it. typed
// adds the types of nodes and edges.
func (l *layout) partition(nodes, edges int64, typed bool) graphPlaces {
	var at graphPlaces
	l.u64(magicGraphs, 2, 2, 1)
	l.put(make([]byte, graphsHeader-l.size))
	start := uint64(graphsHeader + 16)
	l.u64(start, 0) // no labels

	l.u64(magicHetero)
	l.metagraph()
	l.u64(1, magicUnit, fmtCOO|1<<32, allFormats|1<<32)
	l.metagraph()
	l.u64(magicCOO, uint64(nodes), uint64(nodes))
	at.src = l.ndarray(dtypes.Int64, edges)
	at.dst = l.ndarray(dtypes.Int64, edges)
	l.ints() // null edge ids
	l.put([]byte{0, 0})
	l.u64(1, uint64(nodes))

	type column struct {
		at   *int64
		name string
		of   dtypes.Type
	}
	frame := func(rows int64, columns ...column) {
		if !typed { // the last one tells types
			columns = columns[:len(columns)-1]
		}
		l.u64(1, uint64(len(columns)))
		for _, c := range columns {
			l.str(c.name)
			*c.at = l.ndarray(c.of, rows)
		}
	}
	frame(nodes, column{&at.nodeID, "_ID", dtypes.Int64}, column{&at.innerNode, "inner_node", dtypes.Uint8},
		column{&at.partID, "part_id", dtypes.Int64}, column{&at.nodeType, "_TYPE", dtypes.Int16})
	frame(edges, column{&at.edgeID, "_ID", dtypes.Int64}, column{&at.innerEdge, "inner_edge", dtypes.Uint8},
		column{&at.edgeType, "_TYPE", dtypes.Int32})
	l.u64(1)
	l.str(graph.OnlyEdgeType.Src)
	l.u64(1)
	l.str(graph.OnlyEdgeType.Rel)
	l.u64(16, 1, start, 16)
	return at
}
