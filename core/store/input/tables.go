package input

import (
	"sar/core/internal/argument"
	"sar/core/store/disk"
)

// typedTables are the node types and the relations of a graph on disk.
type typedTables struct {
	name       string // of the file, for errors
	node, edge []typedRows
}

// typedRows is a node type or a relation. edges and the ends are of relations.
type typedRows struct {
	name     string
	rows     int64
	arrays   map[string]disk.Array
	edges    edgeReader
	src, dst int // node types
}

// edgeReader gives the edges of one relation in runs, the same ones each time. Ends that
// are no nodes, of so many, are a *FormatError.
type edgeReader interface {
	edgeRuns(numSrc, numDst int64, yield func(first int64, src, dst []int64) error) error
}

func typeRows(list []typedRows) []TypeRows {
	out := make([]TypeRows, len(list))
	for i, of := range list {
		out[i] = TypeRows{of.name, of.rows, disk.Infos(of.arrays)}
	}
	return out
}

func total(list []typedRows) (n int64) {
	for _, of := range list {
		n += of.rows
	}
	return n
}

func (g *typedTables) NodeTypes() []TypeRows { return typeRows(g.node) }
func (g *typedTables) EdgeTypes() []TypeRows { return typeRows(g.edge) }
func (g *typedTables) NumNodes() int64       { return total(g.node) }
func (g *typedTables) NumEdges() int64       { return total(g.edge) }

// EdgesBatch numbers nodes and edges over all types.
func (g *typedTables) EdgesBatch(yield func(first int64, src, dst []int64) error) error {
	start := func(kind int) int64 { return total(g.node[:kind]) }
	var before int64
	for _, r := range g.edge {
		from, to := start(r.src), start(r.dst)
		err := r.edges.edgeRuns(g.node[r.src].rows, g.node[r.dst].rows, func(first int64, src, dst []int64) error {
			for i := range src {
				src[i] += from
				dst[i] += to
			}
			return yield(before+first, src, dst)
		})
		if err != nil {
			return err
		}
		before += r.rows
	}
	return nil
}

// ReadRows reads whole rows of a feature of one type.
func (g *typedTables) ReadRows(edge bool, kind int, name string, first int64, dst []byte) error {
	list, what := g.node, "node type"
	if edge {
		list, what = g.edge, "relation"
	}
	if kind < 0 || kind >= len(list) {
		return argument.Errorf("%s has no %s %d", g.name, what, kind)
	}
	a, ok := list[kind].arrays[name]
	if !ok {
		return argument.Errorf("%s has no feature %q of %s %q", g.name, name, what, list[kind].name)
	}
	return a.ReadRows(first, dst)
}
