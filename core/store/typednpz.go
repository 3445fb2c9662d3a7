package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"sar/core/graph"
)

// WholeGraph is a graph on disk that is to be partitioned.
type WholeGraph interface {
	Source
	NumNodes() int64
	NumEdges() int64
	Ignored() []string // names of arrays that are neither features nor edges
	// IDs is, by node type, the path of the file of the users' ids, where there is one.
	IDs() map[string]string
	Close() error
}

// OpenGraph opens a graph directory (see graphDir), all parts of a partitioned graph (by
// their description, see OpenParts) or an .npz graph: one of OpenNPZ, or one of several types:
//
//	author:writes:paper/edge_index  [2, E]: authors in row 0, papers in row 1
//	author:writes:paper/since       [E, ...], feature "since" of that relation
//	paper/x, paper/y, paper/…       [N, ...], features of papers; x and y are called "features" and "labels"
//	author/num_nodes                a scalar, for types without features; else the largest id + 1
//
// Node types and relations are numbered by name, as DGL numbers them.
func OpenGraph(path string) (WholeGraph, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return openGraphDir(path)
	}
	if filepath.Ext(path) == ".json" {
		return OpenParts(path, Options{})
	}
	f, err := openFile("the graph", path)
	if err != nil {
		return nil, err
	}
	z, err := openNpz(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	typed := slices.ContainsFunc(z.names, func(name string) bool { return strings.HasSuffix(name, "/edge_index") })
	if !typed {
		z.Close()
		d, err := OpenNPZ(path)
		if err != nil {
			return nil, err
		}
		return homogeneous{d}, nil
	}
	g := &typedGraph{z: z, typedTables: typedTables{name: f.name}}
	for _, step := range []func() error{g.relations, g.countNodes, g.sortArrays} {
		if err := step(); err != nil {
			z.Close()
			return nil, err
		}
	}
	return g, nil
}

// homogeneous is a Dataset as a graph of one type.
type homogeneous struct{ *Dataset }

func (h homogeneous) NodeTypes() []TypeRows {
	return []TypeRows{{defaultNodeType, h.NumNodes(), h.NodeArrays()}}
}

func (h homogeneous) EdgeTypes() []TypeRows {
	return []TypeRows{{defaultEdgeType.String(), h.NumEdges(), h.EdgeArrays()}}
}

func (h homogeneous) ReadRows(edge bool, _ int, name string, first int64, dst []byte) error {
	return h.Dataset.ReadRows(edge, name, first, dst)
}

// typedGraph is an .npz graph of several types.
type typedGraph struct {
	typedTables
	z       *npz
	ignored []string
}

// relations finds the edges, and node types by the names that they have in them.
func (g *typedGraph) relations() error {
	kinds := map[string]bool{}
	var triples []graph.EdgeType
	for _, name := range g.z.names {
		text, is := strings.CutSuffix(name, "/edge_index")
		if !is {
			continue
		}
		a := g.z.arrays[name]
		triple, err := parseEdgeType(text)
		if err != nil {
			return a.f.bad(-1, `edges under "source:relation:destination/edge_index"`, "%q", name)
		}
		if err := a.checkEdgeIndex(); err != nil {
			return err
		}
		triples = append(triples, triple)
		kinds[triple.Src], kinds[triple.Dst] = true, true
	}
	names := make([]string, 0, len(kinds))
	for name := range kinds {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		g.node = append(g.node, typedRows{name: name, rows: -1, arrays: map[string]array{}})
	}
	sort.Slice(triples, func(i, j int) bool {
		a, b := triples[i], triples[j]
		return slices.Compare([]string{a.Src, a.Rel, a.Dst}, []string{b.Src, b.Rel, b.Dst}) < 0
	})
	for _, t := range triples {
		a := g.z.arrays[t.String()+"/edge_index"]
		src, _ := slices.BinarySearch(names, t.Src)
		dst, _ := slices.BinarySearch(names, t.Dst)
		g.edge = append(g.edge, typedRows{name: t.String(), rows: a.shape[1], arrays: map[string]array{}, edges: a, src: src, dst: dst})
	}
	return nil
}

// countNodes finds the number of nodes of each type, from whatever says it first.
func (g *typedGraph) countNodes() error {
	for i := range g.node {
		of := &g.node[i]
		from := ""
		for _, name := range g.z.names {
			short, is := strings.CutPrefix(name, of.name+"/")
			if !is || (short != "x" && short != "y" && !strings.HasSuffix(short, "mask")) {
				continue
			}
			a := g.z.arrays[name]
			if len(a.shape) == 0 {
				return a.f.bad(a.off, fmt.Sprintf("%q with a row for each node", name), "a scalar")
			}
			if of.rows >= 0 && of.rows != a.shape[0] {
				return a.f.bad(a.off, fmt.Sprintf("%d rows of %q, as many as %q has", of.rows, name, from), "%d", a.shape[0])
			}
			of.rows, from = a.shape[0], name
		}
		if a := g.z.arrays[of.name+"/num_nodes"]; a != nil {
			var n [1]int64
			if a.n != 1 || !a.dtype.IsInteger() {
				return a.f.bad(a.off, fmt.Sprintf("%q, one whole number", of.name+"/num_nodes"), "%s of shape %v", a.dtype, a.shape)
			}
			if err := a.ints(0, n[:]); err != nil {
				return err
			}
			if n[0] < 0 || (of.rows >= 0 && of.rows != n[0]) {
				return a.f.bad(a.off, fmt.Sprintf("%q equal to the %d rows of %q", of.name+"/num_nodes", of.rows, from), "%d", n[0])
			}
			of.rows = n[0]
		}
		if of.rows < 0 {
			if err := g.largest(i); err != nil {
				return err
			}
		}
		if limit := 16*g.z.f.size + 1024; of.rows > limit {
			return g.z.f.bad(-1, fmt.Sprintf("at most %d nodes of type %q in a file of %d bytes", limit, of.name, g.z.f.size), "%d", of.rows)
		}
	}
	return nil
}

// largest counts the nodes of a type as the largest id + 1.
func (g *typedGraph) largest(kind int) error {
	last := int64(-1)
	for _, r := range g.edge {
		err := r.edges.edgeRuns(1<<62, 1<<62, func(_ int64, src, dst []int64) error {
			for i := range src {
				if r.src == kind {
					last = max(last, src[i])
				}
				if r.dst == kind {
					last = max(last, dst[i])
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	g.node[kind].rows = last + 1
	return nil
}

// sortArrays finds the features.
func (g *typedGraph) sortArrays() error {
	for _, name := range g.z.names {
		owner, short, is := strings.Cut(name, "/")
		if short == "edge_index" || short == "num_nodes" {
			continue
		}
		a := g.z.arrays[name]
		var of *typedRows
		for _, list := range [][]typedRows{g.node, g.edge} {
			if i := slices.IndexFunc(list, func(r typedRows) bool { return r.name == owner }); i >= 0 {
				of = &list[i]
			}
		}
		if !is || of == nil || len(a.shape) == 0 || a.shape[0] != of.rows {
			g.ignored = append(g.ignored, name)
			continue
		}
		if strings.ContainsAny(short, "/\\") || short == origID {
			return a.f.bad(-1, fmt.Sprintf("a feature without slashes and not called %q", origID), "%q: rename it", name)
		}
		if of.edges == nil {
			switch short {
			case "x":
				short = "features"
			case "y":
				short = "labels"
			}
		}
		if _, twice := of.arrays[short]; twice {
			return a.f.bad(-1, fmt.Sprintf("one array for feature %q of %q", short, owner), "two: x stands for features and y for labels")
		}
		of.arrays[short] = *a
	}
	return nil
}

// IDs implements WholeGraph: an .npz file has numbers alone.
func (g *typedGraph) IDs() map[string]string { return nil }

// Ignored names arrays that are no features.
func (g *typedGraph) Ignored() []string { return g.ignored }

// Close closes the file.
func (g *typedGraph) Close() error { return g.z.Close() }
