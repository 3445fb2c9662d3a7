package dgl

import (
	"fmt"
	"slices"

	"sar/core/store/disk"
)

// Sparse formats, as DGL numbers them.
const (
	fmtCOO = 1
	fmtCSR = 2
	fmtCSC = 4
)

const graphsHeader = 4096 // what precedes the labels

// matrix is the edges of one relation in a format that was saved.
//
// COO: edge k goes from row[k] to col[k]. CSR: ptr over sources, col holds
// destinations. CSC: ptr over destinations, col holds sources. ids, where
// present, is the edge number of every slot, else slot k is edge k.
type matrix struct {
	format         int
	numSrc, numDst int64
	ptr, row, col  disk.Array
	ids            *disk.Array
	edges          int64
}

// graphFile is the first graph of a file that dgl.save_graphs wrote.
type graphFile struct {
	relations    []matrix
	numNodes     []int64 // per node type
	ndata, edata [][]namedArray
	ntypes       []string
	etypes       []string
}

// parseGraphs reads the structure of the first graph; arrays stay in the file.
func parseGraphs(f *disk.File) (*graphFile, error) {
	c := newCursor(f)
	c.magic(magicGraphs, "a file of graphs")
	c.exactly(2, "version")
	c.exactly(2, "graph type")
	at := c.off
	graphs := c.u64("the number of graphs")
	c.want(graphs >= 1 && graphs <= uint64(f.Size), at, "at least one graph", "%d", graphs)
	c.skip(graphsHeader-c.off, "the header")
	at = c.off
	start := c.i64("the place of the first graph")
	c.named("the labels")
	c.want(start == c.off, at, fmt.Sprintf("the place of the first graph, %d", c.off), "%d", start)
	g := &graphFile{}
	c.graph(g)
	if c.err == nil && graphs == 1 {
		c.tail(start)
	}
	return g, c.err
}

// graphArrays is where the arrays of such a file lie.
func graphArrays(f *disk.File) ([]disk.Array, error) {
	g, err := parseGraphs(f)
	if err != nil {
		return nil, err
	}
	var out []disk.Array
	for _, m := range g.relations {
		out = append(out, m.row, m.ptr, m.col)
		if m.ids != nil {
			out = append(out, *m.ids)
		}
	}
	for _, frames := range [][][]namedArray{g.ndata, g.edata} {
		for _, frame := range frames {
			for _, a := range frame {
				out = append(out, a.Array)
			}
		}
	}
	// A matrix has row or ptr, and not both.
	return slices.DeleteFunc(out, func(a disk.Array) bool { return a.File == nil }), nil
}

// tail checks what follows the only graph: where it starts, wrapped as a
// string, and the length of that string once more.
func (c *cursor) tail(start int64) {
	c.exactly(16, "the length of the list of graphs")
	c.exactly(1, "the number of graphs in the list")
	c.exactly(uint64(start), "the place of the first graph in the list")
	c.exactly(16, "the closing length of the list of graphs")
	c.atEnd()
}

func (c *cursor) graph(g *graphFile) {
	c.magic(magicHetero, "a heterograph")
	c.magic(magicImmGraph, "the metagraph")
	c.csr("the metagraph", fmtCSR)
	relations := c.count(8, "relations")
	for i := int64(0); i < relations && c.err == nil; i++ {
		g.relations = append(g.relations, c.unit(fmt.Sprintf("relation %d", i)))
	}
	at := c.off
	for n := c.count(8, "node types"); n > 0 && c.err == nil; n-- {
		g.numNodes = append(g.numNodes, c.i64("the number of nodes"))
	}
	g.ndata = c.frames("node data")
	g.edata = c.frames("edge data")
	for n := c.count(stringMinBytes, "names of node types"); n > 0 && c.err == nil; n-- {
		g.ntypes = append(g.ntypes, c.str("the name of a node type"))
	}
	for n := c.count(stringMinBytes, "names of edge types"); n > 0 && c.err == nil; n-- {
		g.etypes = append(g.etypes, c.str("the name of an edge type"))
	}
	c.want(len(g.ndata) == len(g.numNodes) && len(g.ntypes) == len(g.numNodes), at,
		"as many node types, names and tables of node data", "%d, %d and %d", len(g.numNodes), len(g.ntypes), len(g.ndata))
	c.want(len(g.edata) == len(g.relations) && len(g.etypes) == len(g.relations), at,
		"as many relations, names and tables of edge data", "%d, %d and %d", len(g.relations), len(g.etypes), len(g.edata))
}

func (c *cursor) frames(what string) [][]namedArray {
	var out [][]namedArray
	for n := c.count(8, "tables of "+what); n > 0 && c.err == nil; n-- {
		out = append(out, c.named(what))
	}
	return out
}

// unit reads a UnitGraph. Where it was saved in several formats, which all say
// the same, the first is kept: COO needs no permutation.
func (c *cursor) unit(what string) matrix {
	c.magic(magicUnit, what)
	at := c.off
	saved := c.i64("the saved format of " + what)
	c.i64("the allowed formats of " + what)
	c.want(saved>>32 == 1, at, "the saved format of "+what+", marked as such", "%#x", saved)
	formats := saved & 0xffffffff
	c.want(formats != 0 && formats&^(fmtCOO|fmtCSR|fmtCSC) == 0, at,
		"saved formats of "+what+": COO (1), CSR (2), CSC (4) or a sum of them", "%d", formats)
	var m matrix
	for _, format := range []int{fmtCOO, fmtCSR, fmtCSC} {
		if c.err != nil || formats&int64(format) == 0 {
			continue
		}
		c.magic(magicImmGraph, "the metagraph of "+what)
		c.csr("the metagraph of "+what, fmtCSR)
		var next matrix
		if format == fmtCOO {
			next = c.coo(what)
		} else {
			next = c.csr(what, format)
		}
		if m.format == 0 {
			m = next
		}
		c.want(m.edges == next.edges && m.numSrc == next.numSrc && m.numDst == next.numDst, at,
			"the same size of "+what+" in each of its formats",
			"%d x %d with %d edges and %d x %d with %d", m.numSrc, m.numDst, m.edges, next.numSrc, next.numDst, next.edges)
	}
	return m
}

func (c *cursor) dims(what string) (cols, rows int64) {
	at := c.off
	cols, rows = c.i64("the number of columns of "+what), c.i64("the number of rows of "+what)
	c.want(cols >= 0 && rows >= 0, at, "sizes of "+what+" that are not negative", "%d columns, %d rows", cols, rows)
	return cols, rows
}

// slots checks the edge numbers of a matrix: null, or one per slot.
func (c *cursor) slots(m *matrix, ids disk.Array) {
	if c.err != nil || ids.Len == 0 {
		return
	}
	if c.err = ids.WantVector(m.edges); c.err == nil {
		m.ids = &ids
	}
}

func (c *cursor) csr(what string, format int) matrix {
	c.magic(magicCSR, what)
	cols, rows := c.dims(what)
	m := matrix{format: format, numSrc: rows, numDst: cols}
	if format == fmtCSC {
		m.numSrc, m.numDst = cols, rows
	}
	m.ptr = c.ndarray("the row pointers of " + what)
	m.col = c.ndarray("the column indices of " + what)
	ids := c.ndarray("the edge ids of " + what)
	c.boolean("whether " + what + " is sorted")
	if c.err == nil {
		if rows >= m.ptr.Len {
			// Says what was expected without computing rows + 1, which may overflow.
			c.err = m.ptr.File.Bad(m.ptr.Offset, fmt.Sprintf("one more row pointer of %s than its %d rows", what, rows), "%d",
				m.ptr.Len)
		} else {
			c.err = m.ptr.WantVector(rows + 1)
		}
	}
	if c.err == nil {
		m.edges = m.col.Len
		c.err = m.col.WantVector(m.edges)
	}
	c.slots(&m, ids)
	return m
}

func (c *cursor) coo(what string) matrix {
	c.magic(magicCOO, what)
	cols, rows := c.dims(what)
	m := matrix{format: fmtCOO, numSrc: rows, numDst: cols}
	m.row = c.ndarray("the sources of " + what)
	m.col = c.ndarray("the destinations of " + what)
	ids := c.ndarray("the edge ids of " + what)
	c.boolean("whether the rows of " + what + " are sorted")
	c.boolean("whether the columns of " + what + " are sorted")
	if c.err == nil {
		m.edges = m.row.Len
		c.err = m.row.WantVector(m.edges)
	}
	if c.err == nil {
		c.err = m.col.WantVector(m.edges)
	}
	c.slots(&m, ids)
	return m
}
