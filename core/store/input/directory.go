package input

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sar/core/graph"
	"sar/core/internal/must"
	"sar/core/store/disk"
	"sar/core/store/npy"
)

// Description is the file of a graph directory that describes it.
const Description = "graph.json"

// graphFormat is what a graph directory calls its format.
const graphFormat = "SAR graph 1"

// directory is a directory of .npy files:
//
//	graph.json
//	nodes/<type>/<feature>.npy           [N, ...]
//	edges/<relation>/indptr.npy          [N of the destination type + 1]: in-edges by destination
//	edges/<relation>/source.npy          [E]
//	edges/<relation>/<feature>.npy       [E, ...]
//
// The description names each file with its dtype and shape. Keys that are not known are
// passed over. Node types and relations are numbered in its order. Edge k of a relation is
// the one whose source is source[k]. Where the description names a file of checksums
// (SumDirectory), what is read is held against them.
type directory struct {
	Tables
	npy.Directory
	ids map[string]string // path of the users' ids by node type
}

// description is the description of a graph directory.
type description struct {
	Format    string                    `json:"format"`
	NodeTypes disk.Object[nodeTypeJSON] `json:"node_types"`
	EdgeTypes []edgeTypeJSON            `json:"edge_types"`
	Checksums string                    `json:"checksums"` // a file
}

type nodeTypeJSON struct {
	Count    int64                      `json:"count"`
	IDs      *npy.Described             `json:"ids"`
	Features disk.Object[npy.Described] `json:"features"`
}

type edgeTypeJSON struct {
	Type     []string                   `json:"type"`
	Count    int64                      `json:"count"`
	Indptr   *npy.Described             `json:"indptr"`
	Source   *npy.Described             `json:"source"`
	Features disk.Object[npy.Described] `json:"features"`
}

func newDirectory(path string) *directory {
	return &directory{Directory: npy.Directory{Description: path},
		ids: map[string]string{}}
}

// openDirectory opens a graph directory: reads its description and the headers of its files.
func openDirectory(dir string) (_ Graph, err error) {
	path := filepath.Join(dir, Description)
	top, _, err := readGraphJSON(path)
	if err != nil {
		return nil, err
	}
	g := newDirectory(path)
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	defer must.Return(&err)
	must.Do(g.openSums(top.Checksums))
	g.nodeTypes(top.NodeTypes)
	g.edgeTypes(top.EdgeTypes)
	// More nodes than data stand behind are refused: what works on the graph takes memory for every one.
	limit := 2*g.NumEdges() + 16*g.Size()
	g.Want(g.NumNodes() <= limit, fmt.Sprintf("at most %d nodes in files of this size", limit), "%d", g.NumNodes())
	return g, nil
}

// readGraphJSON reads a description and holds it against its own checksum, if it has one.
func readGraphJSON(path string) (top description, data []byte, err error) {
	defer must.Return(&err)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return top, nil, &disk.FormatError{File: filepath.Dir(path), Offset: -1,
			Want: fmt.Sprintf("a graph: a directory with a %s, or an .npz file", Description),
			Got:  "a directory without one", Remedy: "sar ingest makes one out of tables of nodes and edges"}
	}
	data = must.Get(disk.ReadJSON("the description of the graph", path))
	must.Do(disk.Decode(path, 0, data, &top, "the description of a graph"))
	disk.Want(top.Format == graphFormat, path, -1, fmt.Sprintf(`"format" to be %q`, graphFormat), "%q", top.Format)
	must.Get(disk.CheckSeal(path, data))
	return top, data, nil
}

// openSums reads the file of checksums that the description names, if it names one.
func (g *directory) openSums(name string) error {
	if name == "" {
		return nil
	}
	path, err := g.Inside("the checksums", name)
	if err == nil {
		g.Sums, _, err = disk.OpenSums(path)
	}
	return err
}

func (g *directory) nodeTypes(list disk.Object[nodeTypeJSON]) {
	g.Want(len(list) > 0, `"node_types" to name at least one`, "none")
	for _, t := range list {
		g.Want(isName(t.Name, ":/\\\x00"), "names of node types without colons and slashes", "%q", t.Name)
		g.Nodes = append(g.Nodes, g.rows(t.Name, t.Value.Count, t.Value.Features))
		if ids := t.Value.IDs; ids != nil {
			g.ids[t.Name] = must.Get(g.Inside(fmt.Sprintf("the ids of %q", t.Name), ids.File))
		}
	}
}

// isName tells whether something may be called so, by a name without certain characters.
func isName(name, without string) bool {
	return name != "" && len(name) <= disk.MaxName && !strings.ContainsAny(name, without)
}

func (g *directory) edgeTypes(list []edgeTypeJSON) {
	g.Want(len(list) > 0, `"edge_types" to have at least one relation`, "none")
	seen := map[string]bool{}
	for _, t := range list {
		name := strings.Join(t.Type, ":")
		triple, err := graph.ParseEdgeType(name)
		g.Want(err == nil && len(t.Type) == 3 && isName(name, "/\\\x00"),
			`"type" of a relation to be ["source", "relation", "destination"], without colons and slashes`, "%q", t.Type)
		g.Want(!seen[name], "each relation once", "%s again", name)
		seen[name] = true
		of := g.rows(name, t.Count, t.Features)
		of.Src, of.Dst = g.nodeType(triple, triple.Src), g.nodeType(triple, triple.Dst)
		of.Runs = g.inEdges(name, t, g.Nodes[of.Dst].Rows)
		g.Edges = append(g.Edges, of)
	}
}

func (g *directory) nodeType(t graph.EdgeType, name string) int {
	i := slices.IndexFunc(g.Nodes, func(of Table) bool { return of.Name == name })
	g.Want(i >= 0, fmt.Sprintf(`the node types of relation %s among "node_types"`, t), "%q", name)
	return i
}

// rows opens the features of a type.
func (g *directory) rows(name string, count int64, features disk.Object[npy.Described]) Table {
	of := Table{Name: name, Rows: count, Arrays: map[string]disk.Array{}}
	g.Want(count >= 0 && count <= disk.MaxCount,
		fmt.Sprintf(`"count" of %q to be from 0 to %d`, name, int64(disk.MaxCount)), "%d", count)
	for _, f := range features {
		g.Want(isName(f.Name, "/\\\x00") && f.Name != OrigID,
			fmt.Sprintf("names of features without slashes and not %q", OrigID), "%q of %q", f.Name, name)
		a := must.Get(g.Open(fmt.Sprintf("feature %q of %s", f.Name, name), f.Value))
		a.File.Want(len(a.Shape) > 0 && a.Shape[0] == count, -1, fmt.Sprintf("%d rows of %s", count, a.Name), "shape %v",
			a.Shape)
		of.Arrays[f.Name] = *a
	}
	return of
}

// inEdges opens the CSR of a relation into so many destinations.
func (g *directory) inEdges(name string, t edgeTypeJSON, rows int64) *CSR {
	open := func(what string, from *npy.Described, n int64) disk.Array {
		g.Want(from != nil, fmt.Sprintf("%q of relation %s", what, name), "no such key")
		a := must.Get(g.Open(fmt.Sprintf("%q of %s", what, name), *from))
		must.Do(a.WantVector(n))
		return *a
	}
	c := &CSR{name, open("indptr", t.Indptr, rows+1), open("source", t.Source, t.Count)}
	c.checkEnds()
	return c
}

func (g *directory) IDs() map[string]string { return g.ids }
func (g *directory) Ignored() []string      { return nil } // what the description does not name is not looked at
