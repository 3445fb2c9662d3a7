package input

import (
	"fmt"
	"strings"

	"sar/core/graph"
	"sar/core/internal/must"
	"sar/core/store/disk"
	"sar/core/store/npy"
)

// npzGraph is an .npz graph, as users have it before they partition it. One of one type:
//
//	edge_index   [2, E], integers: sources in row 0, destinations in row 1
//	x            [N, ...], becomes node feature "features"
//	y            [N, ...], becomes node feature "labels"
//	num_nodes    optional scalar
//
// Any other array of N rows is a node feature under its own name, and of E rows (E not N)
// an edge feature. Or one of several types:
//
//	author:writes:paper/edge_index  [2, E]: authors in row 0, papers in row 1
//	author:writes:paper/since       [E, ...], feature "since" of that relation
//	paper/x, paper/y, paper/…       [N, ...], features of papers
//	author/num_nodes                a scalar, for types without features
//
// Node types and relations are numbered in the order in which the file first names them, so
// that models that are built from the lists of types begin with the same weights as without
// partitions. N is the number of rows of x, y or an array whose name ends in "mask"; without
// those num_nodes; without that the largest id + 1. It may be used by several goroutines.
type npzGraph struct {
	Tables
	z       *npy.Zip
	ignored []string
	single  bool // one type, which names of arrays do not have before them
}

func OpenNPZ(f *disk.File) (_ Graph, err error) {
	z, err := npy.OpenZip(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	defer func() {
		if err != nil {
			z.Close()
		}
	}()
	defer must.Return(&err)
	g := &npzGraph{z: z}
	g.relations()
	g.countNodes()
	g.sortArrays()
	return g, nil
}

// prefix is what the names of the arrays of a type begin with.
func (g *npzGraph) prefix(kind string) string {
	if g.single {
		return ""
	}
	return kind + "/"
}

// relations finds the edges, and node types by the names that they have in them. Both are
// numbered in the order in which the file first names them.
func (g *npzGraph) relations() {
	var triples []graph.EdgeType
	for _, name := range g.z.Names {
		text, is := strings.CutSuffix(name, "/edge_index")
		if !is {
			continue
		}
		triple, err := graph.ParseEdgeType(text)
		g.z.Arrays[name].File.Want(err == nil, -1, `edges under "source:relation:destination/edge_index"`, "%q", name)
		triples = append(triples, triple)
	}
	if g.single = len(triples) == 0; g.single {
		triples = append(triples, graph.OnlyEdgeType)
	}
	nodes, byName := map[string]bool{}, map[string]graph.EdgeType{}
	for _, t := range triples {
		nodes[t.Src], nodes[t.Dst] = true, true
		byName[t.String()] = t
	}
	numbers := map[string]int{}
	number := func(name string) int {
		if _, known := numbers[name]; !known {
			numbers[name] = len(g.Nodes)
			g.Nodes = append(g.Nodes, Table{Name: name, Rows: -1, Arrays: map[string]disk.Array{}})
		}
		return numbers[name]
	}
	names := g.z.Names
	if g.single {
		names = []string{graph.OnlyEdgeType.String()}
	}
	for _, name := range names {
		kind, _, _ := strings.Cut(name, "/")
		if nodes[kind] {
			number(kind)
		}
		t, is := byName[kind]
		if !is {
			continue
		}
		delete(byName, kind)
		a := g.z.Arrays[g.prefix(kind)+"edge_index"]
		g.z.File.Want(a != nil, -1, `an array "edge_index" of shape [2, edges]`, "arrays %q", g.z.Names)
		edgeIndex{a}.check()
		g.Edges = append(g.Edges, Table{Name: kind, Rows: a.Shape[1], Arrays: map[string]disk.Array{}, Runs: edgeIndex{a},
			Src: number(t.Src), Dst: number(t.Dst)})
	}
}

// edgeIndex is an array [2, edges] of the ends of edges.
type edgeIndex struct{ *disk.Array }

func (a edgeIndex) check() {
	hint := ""
	if len(a.Shape) == 2 && a.Shape[1] == 2 {
		hint = ": save its transpose"
	}
	a.File.Want(len(a.Shape) == 2 && a.Shape[0] == 2, a.Offset, `"edge_index" of shape [2, edges]`, "shape %v%s", a.Shape,
		hint)
	a.File.Want(a.DType.IsInteger(), a.Offset, `"edge_index" of whole numbers`, "%s", a.DType)
}

// countNodes finds the number of nodes of each type, from whatever says it first.
func (g *npzGraph) countNodes() {
	for i := range g.Nodes {
		of, from, prefix := &g.Nodes[i], "", g.prefix(g.Nodes[i].Name)
		for _, name := range append([]string{prefix + "x", prefix + "y"}, g.z.Names...) {
			a := g.z.Arrays[name]
			short, is := strings.CutPrefix(name, prefix)
			if a == nil || !is || (short != "x" && short != "y" && !strings.HasSuffix(short, "mask")) {
				continue
			}
			a.File.Want(len(a.Shape) > 0, a.Offset, fmt.Sprintf("%q with a row for each node", name), "a scalar")
			if of.Rows < 0 {
				of.Rows, from = a.Shape[0], name
			}
			a.File.Want(of.Rows == a.Shape[0], a.Offset, fmt.Sprintf("%d rows of %q, as many as %q has", of.Rows, name, from),
				"%d", a.Shape[0])
		}
		key := prefix + "num_nodes"
		if a := g.z.Arrays[key]; a != nil {
			var n [1]int64
			a.File.Want(a.Len == 1 && a.DType.IsInteger(), a.Offset, fmt.Sprintf("%q, one whole number", key), "%s of shape %v",
				a.DType, a.Shape)
			must.Do(a.Ints(0, n[:]))
			a.File.Want(n[0] >= 0 && (of.Rows < 0 || of.Rows == n[0]), a.Offset,
				fmt.Sprintf("%q equal to the %d rows of %q", key, of.Rows, from), "%d", n[0])
			of.Rows = n[0]
		}
		if of.Rows < 0 {
			g.largest(i)
		}
		g.plausible(of)
	}
}

// largest counts the nodes of a type as the largest id + 1.
func (g *npzGraph) largest(kind int) {
	last := int64(-1)
	for _, r := range g.Edges {
		must.Do(r.Runs.EdgeRuns(1<<62, 1<<62, func(_ int64, src, dst []int64) error {
			for i := range src {
				if r.Src == kind {
					last = max(last, src[i])
				}
				if r.Dst == kind {
					last = max(last, dst[i])
				}
			}
			return nil
		}))
	}
	g.Nodes[kind].Rows = last + 1
}

// plausible refuses a number of nodes that no data of the file stand behind: what works on
// the graph takes memory for every node.
func (g *npzGraph) plausible(of *Table) {
	for name, a := range g.z.Arrays {
		if strings.HasPrefix(name, g.prefix(of.Name)) && len(a.Shape) > 0 && a.Shape[0] == of.Rows && a.Len >= of.Rows {
			return
		}
	}
	limit := 16*g.z.File.Size + 2*g.NumEdges()
	g.z.File.Want(of.Rows <= limit, -1,
		fmt.Sprintf("at most %d nodes of type %q in a file of %d bytes without a row for each", limit, of.Name,
			g.z.File.Size), "%d", of.Rows)
}

// sortArrays finds the features.
func (g *npzGraph) sortArrays() {
	for _, name := range g.z.Names {
		a := g.z.Arrays[name]
		of, short := g.owner(name, a)
		if short == "edge_index" || short == "num_nodes" {
			continue
		}
		if of == nil {
			g.ignored = append(g.ignored, name)
			continue
		}
		a.File.Want(!strings.ContainsAny(short, "/\\") && short != OrigID, -1,
			fmt.Sprintf("a feature without slashes and not called %q", OrigID), "%q: rename it", name)
		if of.Runs == nil {
			switch short {
			case "x":
				short = "features"
			case "y":
				short = "labels"
			}
		}
		_, twice := of.Arrays[short]
		a.File.Want(!twice, -1, fmt.Sprintf("one array for feature %q of %q", short, of.Name),
			"two: x stands for features and y for labels")
		of.Arrays[short] = *a
	}
}

// owner is what an array has a row of each of, nil if it is no feature, and its name
// without the type.
func (g *npzGraph) owner(name string, a *disk.Array) (of *Table, short string) {
	kind, short, is := strings.Cut(name, "/")
	if g.single {
		short = name
	}
	for _, list := range [][]Table{g.Nodes, g.Edges} {
		for i := range list {
			if (g.single || is && list[i].Name == kind) && len(a.Shape) > 0 && a.Shape[0] == list[i].Rows {
				return &list[i], short
			}
		}
	}
	return nil, short
}

func (g *npzGraph) IDs() map[string]string { return nil } // an .npz file has numbers alone
func (g *npzGraph) Ignored() []string      { return g.ignored }
func (g *npzGraph) Close() error           { return g.z.Close() }

// EdgeRuns implements EdgeReader.
func (a edgeIndex) EdgeRuns(numSrc, numDst int64, yield func(first int64, src, dst []int64) error) error {
	count := a.Shape[1]
	sources := a.Ints
	destinations := func(at int64, dst []int64) error { return a.Ints(count+at, dst) }
	if a.Fortran { // the two ends of an edge beside each other
		ends := make([]int64, 2*min(disk.Batch, count))
		sources = func(at int64, src []int64) error {
			err := a.Ints(2*at, ends[:2*len(src)])
			for i := range src {
				src[i] = ends[2*i]
			}
			return err
		}
		destinations = func(_ int64, dst []int64) error {
			for i := range dst {
				dst[i] = ends[2*i+1]
			}
			return nil
		}
	}
	return disk.Pairs(count, sources, destinations, func(at int64, src, dst []int64) error {
		for i, u := range src {
			if v := dst[i]; uint64(u) >= uint64(numSrc) || uint64(v) >= uint64(numDst) {
				between := fmt.Sprintf("two of the %d nodes", numSrc)
				if numSrc != numDst {
					between = fmt.Sprintf("one of %d nodes and one of %d", numSrc, numDst)
				}
				return a.File.Bad(a.Offset+(at+int64(i))*int64(a.DType.Size()),
					fmt.Sprintf("edge %d between %s", at+int64(i), between), "%d -> %d", u, v)
			}
		}
		return yield(at, src, dst)
	})
}
