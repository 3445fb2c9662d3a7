package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sar/core/graph"
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
func openDirectory(dir string) (Graph, error) {
	path := filepath.Join(dir, Description)
	top, _, err := readGraphJSON(path)
	if err != nil {
		return nil, err
	}
	g := newDirectory(path)
	if err = g.openSums(top.Checksums); err == nil {
		err = g.nodeTypes(top.NodeTypes)
	}
	if err == nil {
		err = g.edgeTypes(top.EdgeTypes)
	}
	if err == nil {
		err = g.plausible()
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// readGraphJSON reads a description and holds it against its own checksum, if it has one.
func readGraphJSON(path string) (top description, data []byte, err error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return top, nil, &disk.FormatError{File: filepath.Dir(path), Offset: -1,
			Want: fmt.Sprintf("a graph: a directory with a %s, or an .npz file", Description),
			Got:  "a directory without one", Remedy: "sar ingest makes one out of tables of nodes and edges"}
	}
	if data, err = disk.ReadJSON("the description of the graph", path); err != nil {
		return top, nil, err
	}
	if err := json.Unmarshal(data, &top); err != nil {
		return top, nil, disk.JSONError(path, 0, "the description of a graph", err)
	}
	if top.Format != graphFormat {
		return top, nil, disk.Bad(path, -1, fmt.Sprintf(`"format" to be %q`, graphFormat), "%q", top.Format)
	}
	_, err = disk.CheckSeal(path, data)
	return top, data, err
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

func (g *directory) nodeTypes(list disk.Object[nodeTypeJSON]) error {
	if len(list) == 0 {
		return g.Bad(`"node_types" to name at least one`, "none")
	}
	for _, t := range list {
		if t.Name == "" || len(t.Name) > disk.MaxName || strings.ContainsAny(t.Name, ":/\\\x00") {
			return g.Bad("names of node types without colons and slashes", "%q", t.Name)
		}
		of, err := g.rows(t.Name, t.Value.Count, t.Value.Features)
		if err != nil {
			return err
		}
		g.Nodes = append(g.Nodes, of)
		if ids := t.Value.IDs; ids != nil {
			if g.ids[t.Name], err = g.Inside(fmt.Sprintf("the ids of %q", t.Name), ids.File); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *directory) edgeTypes(list []edgeTypeJSON) error {
	if len(list) == 0 {
		return g.Bad(`"edge_types" to have at least one relation`, "none")
	}
	seen := map[string]bool{}
	for _, t := range list {
		name := strings.Join(t.Type, ":")
		triple, err := graph.ParseEdgeType(name)
		if err != nil || len(t.Type) != 3 || len(name) > disk.MaxName || strings.ContainsAny(name, "/\\\x00") {
			return g.Bad(`"type" of a relation to be ["source", "relation", "destination"], without colons and slashes`, "%q",
				t.Type)
		}
		if seen[name] {
			return g.Bad("each relation once", "%s again", name)
		}
		seen[name] = true
		of, err := g.rows(name, t.Count, t.Features)
		if err != nil {
			return err
		}
		if of.Src, err = g.nodeType(triple, triple.Src); err != nil {
			return err
		}
		if of.Dst, err = g.nodeType(triple, triple.Dst); err != nil {
			return err
		}
		if of.Runs, err = g.inEdges(name, t, g.Nodes[of.Dst].Rows); err != nil {
			return err
		}
		g.Edges = append(g.Edges, of)
	}
	return nil
}

func (g *directory) nodeType(t graph.EdgeType, name string) (int, error) {
	for i, of := range g.Nodes {
		if of.Name == name {
			return i, nil
		}
	}
	return 0, g.Bad(fmt.Sprintf(`the node types of relation %s among "node_types"`, t), "%q", name)
}

// rows opens the features of a type.
func (g *directory) rows(name string, count int64, features disk.Object[npy.Described]) (of Table, err error) {
	of = Table{Name: name, Rows: count, Arrays: map[string]disk.Array{}}
	if count < 0 || count > disk.MaxCount {
		return of, g.Bad(fmt.Sprintf(`"count" of %q to be from 0 to %d`, name, int64(disk.MaxCount)), "%d", count)
	}
	for _, f := range features {
		if f.Name == "" || len(f.Name) > disk.MaxName || strings.ContainsAny(f.Name, "/\\\x00") || f.Name == OrigID {
			return of, g.Bad(fmt.Sprintf("names of features without slashes and not %q", OrigID), "%q of %q", f.Name, name)
		}
		a, err := g.Open(fmt.Sprintf("feature %q of %s", f.Name, name), f.Value)
		if err != nil {
			return of, err
		}
		if len(a.Shape) == 0 || a.Shape[0] != count {
			return of, a.File.Bad(-1, fmt.Sprintf("%d rows of %s", count, a.Name), "shape %v", a.Shape)
		}
		of.Arrays[f.Name] = *a
	}
	return of, nil
}

// inEdges opens the CSR of a relation into so many destinations.
func (g *directory) inEdges(name string, t edgeTypeJSON, rows int64) (*CSR, error) {
	c := &CSR{relation: name}
	for _, of := range []struct {
		into *disk.Array
		what string
		from *npy.Described
		n    int64
	}{{&c.ptr, "indptr", t.Indptr, rows + 1}, {&c.source, "source", t.Source, t.Count}} {
		if of.from == nil {
			return nil, g.Bad(fmt.Sprintf("%q of relation %s", of.what, name), "no such key")
		}
		a, err := g.Open(fmt.Sprintf("%q of %s", of.what, name), *of.from)
		if err == nil {
			err = a.WantVector(of.n)
		}
		if err != nil {
			return nil, err
		}
		*of.into = *a
	}
	return c, c.checkEnds()
}

// plausible refuses numbers of nodes that no data stand behind: what works on the graph
// takes memory for every node.
func (g *directory) plausible() error {
	limit := 2*g.NumEdges() + 16*g.Size()
	if g.NumNodes() > limit {
		return g.Bad(fmt.Sprintf("at most %d nodes in files of this size", limit), "%d", g.NumNodes())
	}
	return nil
}

func (g *directory) IDs() map[string]string { return g.ids }
func (g *directory) Ignored() []string      { return nil } // what the description does not name is not looked at
