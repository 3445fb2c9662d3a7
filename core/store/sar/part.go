// Package sar reads and writes partitions in SAR's own format: every part is a directory of
// .npy files that are mapped as they lie, with a description.
package sar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sar/core/graph"
	"sar/core/internal/dtypes"
	"sar/core/store/disk"
	"sar/core/store/input"
	"sar/core/store/npy"
)

const (
	partFormat  = "SAR part 1" // of the description of one
	Description = "part.json"
)

// description is the description of a part in SAR's format. It names all files, relative to
// its directory.
type description struct {
	Format       string                     `json:"format"`
	Partitioning string                     `json:"partitioning"` // that of the description of all parts
	Part         int                        `json:"part"`
	Halo         int64                      `json:"halo"` // nodes that it reads of its peers
	NodeTypes    disk.Object[partNodesJSON] `json:"node_types"`
	Relations    []partRelationJSON         `json:"relations"`
}

type partNodesJSON struct {
	Rows     int64                      `json:"rows"`
	IDs      *npy.Described             `json:"ids,omitempty"` // the users' ids of own nodes, a Parquet file
	Features disk.Object[npy.Described] `json:"features"`
}

// partRelationJSON is a relation: the arrays of graph.Stored, and what the part's peers read.
type partRelationJSON struct {
	Type  []string `json:"type"`
	Edges int64    `json:"edges"`
	// Columns are, by round, one past the last column of the rows of peer part-r; the first
	// number is own rows. Sends are likewise one past the last of the rows that part+r reads.
	Columns []int64 `json:"columns"`
	// Travels are, by round, how many of those columns, the first ones, are of rows that travel, and how many sums do
	// in place of the others: where a sum costs half of a row, as much as one, and twice as much. None: all rows travel.
	Travels  []graph.Travels            `json:"travels,omitempty"`
	Sends    []int64                    `json:"sends"`
	Arrays   disk.Object[npy.Described] `json:"arrays"`
	Features disk.Object[npy.Described] `json:"features"`
}

// The arrays of a relation. Edges are ordered either as rowEdgeArray says, or by row and
// then by key; then row i has the edges with the original ids edgeStart[i], edgeStart[i]+1, …
const (
	rowPtrArray    = "row_ptr"    // [rows + 1]
	colArray       = "col"        // [edges]
	colPtrArray    = "col_ptr"    // [columns + 1]
	rowArray       = "row"        // [edges]
	orderArray     = "order"      // [rows], or none
	haloRowsArray  = "halo_rows"  // [columns - own]: the row number of each at its owner
	sendArray      = "send"       // [sends]
	outDegreeArray = "out_degree" // [own source rows], over all parts
	rowEdgeArray   = "row_edge"   // [edges], or none
	keyArray       = "key"        // [columns], or none
	edgeStartArray = "edge_start" // [rows], with key, unless the original ids are a feature
)

// Part is an opened part in SAR's format.
type Part struct {
	npy.Directory
	book         *graph.Book
	part         int
	Partitioning int64
	relations    []relation
	IDs          map[string]string // path of the users' ids by node type
	nodeFeats    map[string]disk.Array
	edgeFeats    map[string]disk.Array
	numHalo      int64
	Halo         []int64 // homogenized ids of the nodes that are read of peers, ascending
}

type relation struct {
	partRelationJSON
	arrays map[string]*disk.Array
}

// Open opens a part. sums are nil where it has no checksums.
func Open(path string, book *graph.Book, part int, partitioning string, sums map[string]disk.Checksums) (s *Part,
	err error) {
	s = &Part{Directory: npy.Directory{Description: path, Sums: sums}, book: book, part: part, IDs: map[string]string{},
		nodeFeats: map[string]disk.Array{}, edgeFeats: map[string]disk.Array{}}
	defer func() {
		if err != nil {
			s.Close()
			s = nil
		}
	}()
	data, err := disk.ReadJSON("the description of the part", s.Description)
	if err != nil {
		return s, err
	}
	var top description
	if err := json.Unmarshal(data, &top); err != nil {
		return s, disk.JSONError(s.Description, 0, "the description of a part", err)
	}
	if top.Format != partFormat {
		return s, s.Bad(fmt.Sprintf("the format %q", partFormat), "%q", top.Format)
	}
	if sealed, err := disk.CheckSeal(s.Description, data); err != nil {
		return s, err
	} else if !sealed {
		return s, s.Bad(fmt.Sprintf("the key %q, the checksum of this file", disk.SealKey), "no such key")
	}
	if top.Part != part || top.Partitioning != partitioning {
		return s, s.Bad(fmt.Sprintf("part %d of partitioning %s", part, partitioning),
			"part %d of %s: these files are of different runs", top.Part, top.Partitioning)
	}
	if _, err := fmt.Sscanf(top.Partitioning, "%x", &s.Partitioning); err != nil {
		return s, s.Bad("the number of a partitioning", "%q", top.Partitioning)
	}
	if s.numHalo = top.Halo; s.numHalo < 0 || s.numHalo > disk.MaxCount {
		return s, s.Bad(`"halo", a number of nodes`, "%d", s.numHalo)
	}
	if err := s.nodeTypes(top.NodeTypes); err != nil {
		return s, err
	}
	return s, s.edgeTypes(top.Relations)
}

func (s *Part) nodeTypes(list disk.Object[partNodesJSON]) error {
	if len(list) != len(s.book.NodeTypes) {
		return s.Bad(fmt.Sprintf("the node types %q", s.book.NodeTypes), "%d types", len(list))
	}
	for t, of := range list {
		name, rows := s.book.NodeTypes[t], s.book.NumNodes(t, s.part)
		if of.Name != name || of.Value.Rows != rows {
			return s.Bad(fmt.Sprintf("%d nodes of type %q, as the description of all parts has them", rows, name), "%d of %q",
				of.Value.Rows, of.Name)
		}
		if of.Value.IDs != nil {
			path, err := s.Inside(fmt.Sprintf("the ids of %q", name), of.Value.IDs.File)
			if err != nil {
				return err
			}
			s.IDs[name] = path
		}
		if err := s.features(of.Value.Features, name, rows, s.nodeFeats); err != nil {
			return err
		}
	}
	return nil
}

func (s *Part) edgeTypes(list []partRelationJSON) error {
	if len(list) != len(s.book.EdgeTypes) {
		return s.Bad(fmt.Sprintf("%d relations", len(s.book.EdgeTypes)), "%d", len(list))
	}
	for t, of := range list {
		name, edges := s.book.EdgeTypes[t].String(), s.book.NumEdges(t, s.part)
		if strings.Join(of.Type, ":") != name || of.Edges != edges {
			return s.Bad(fmt.Sprintf("%d edges of relation %s, as the description of all parts has them", edges, name),
				"%d of %q", of.Edges, of.Type)
		}
		r := relation{partRelationJSON: of, arrays: map[string]*disk.Array{}}
		for _, a := range of.Arrays {
			what := fmt.Sprintf("%q of %s", a.Name, name)
			opened, err := s.Open(what, a.Value)
			if err != nil {
				return err
			}
			if err := opened.WantVector(opened.Len); err != nil {
				return err
			}
			r.arrays[a.Name] = opened
		}
		if err := s.lengths(&r, t); err != nil {
			return err
		}
		s.relations = append(s.relations, r)
		if err := s.features(of.Features, name, edges, s.edgeFeats); err != nil {
			return err
		}
		if r.arrays[edgeStartArray] != nil {
			s.edgeFeats[name+"/"+input.OrigID] = disk.Array{File: r.arrays[edgeStartArray].File,
				Name: "the original ids of edges", DType: dtypes.Int64, Shape: []int64{edges}, Len: edges,
				Derive: r.origIDs}
		}
	}
	return nil
}

// lengths checks that a relation has the arrays that it needs, of the right lengths.
func (s *Part) lengths(r *relation, relation int) error {
	name := s.book.EdgeTypes[relation].String()
	src, dst := s.ends(relation)
	if err := s.ascend(r.Columns, s.book.NumNodes(src, s.part), "columns", name); err != nil {
		return err
	}
	if err := s.ascend(r.Sends, 0, "sends", name); err != nil {
		return err
	}
	if err := s.travels(r, name); err != nil {
		return err
	}
	columns := r.Columns[len(r.Columns)-1]
	rows, own := s.book.NumNodes(dst, s.part), s.book.NumNodes(src, s.part)
	want := map[string]int64{rowPtrArray: rows + 1, colArray: r.Edges, colPtrArray: columns + 1, rowArray: r.Edges,
		haloRowsArray: columns - own, sendArray: r.Sends[len(r.Sends)-1], outDegreeArray: own}
	if r.arrays[orderArray] != nil {
		want[orderArray] = rows
	}
	if r.arrays[keyArray] != nil {
		want[keyArray] = columns
		if r.arrays[edgeStartArray] != nil {
			want[edgeStartArray] = rows
		}
	} else {
		want[rowEdgeArray] = r.Edges
	}
	for _, a := range r.Arrays {
		if _, known := want[a.Name]; !known {
			return s.Bad(fmt.Sprintf("arrays of %s that belong together", name), "%q", a.Name)
		}
	}
	for array, n := range want {
		a := r.arrays[array]
		if a == nil {
			return s.Bad(fmt.Sprintf("the array %q of %s", array, name), "none")
		}
		if err := a.WantVector(n); err != nil {
			return err
		}
		if wide := array == outDegreeArray || array == edgeStartArray; a.DType != dtypes.Int32 &&
			!(wide && a.DType == dtypes.Int64) {
			return a.File.Bad(-1, fmt.Sprintf("%s as int32", a.Name), "%s", a.DType)
		}
	}
	return nil
}

// ascend checks ends by round.
func (s *Part) ascend(ends []int64, first int64, key, relation string) error {
	if len(ends) != s.book.Parts || ends[0] != first || !slices.IsSorted(ends) || ends[len(ends)-1] > disk.MaxCount {
		return s.Bad(fmt.Sprintf("%q of %s to be %d numbers that ascend from %d", key, relation, s.book.Parts, first), "%v",
			ends)
	}
	return nil
}

// travels checks how many columns of each round are of rows that travel.
func (s *Part) travels(r *relation, name string) error {
	if r.Travels == nil {
		return nil
	}
	if len(r.Travels) != len(r.Columns) {
		return s.Bad(fmt.Sprintf(`"travels" of %s to have %d rounds`, name, len(r.Columns)), "%d", len(r.Travels))
	}
	for q := 1; q < len(r.Columns); q++ {
		lead, n := r.Travels[q].Leading, r.Columns[q]-r.Columns[q-1]
		if lead[0] < 0 || !slices.IsSorted(lead[:]) || int64(lead[graph.NumPrices-1]) > n {
			return s.Bad(fmt.Sprintf("rows of %s that travel in round %d, from 0 to at most %d", name, q, n), "%v", lead)
		}
	}
	return nil
}

// Cover is what travels to a part for a sum over edges, over all relations: some of all boundary rows, and sums in
// place of the others, by price.
type Cover struct {
	All int64 `json:"all"`
	graph.Travels
}

// Cover is that of the part; nil where it does not tell.
func (s *Part) Cover() *Cover {
	all := &Cover{}
	for _, r := range s.relations {
		if r.Travels == nil {
			return nil
		}
		all.All += r.Columns[len(r.Columns)-1] - r.Columns[0]
		for _, t := range r.Travels {
			for price := range graph.NumPrices {
				all.Leading[price] += t.Leading[price]
				all.Sums[price] += t.Sums[price]
			}
		}
	}
	return all
}

// ends are the node types of a relation.
func (s *Part) ends(relation int) (src, dst int) {
	t := s.book.EdgeTypes[relation]
	return slices.Index(s.book.NodeTypes, t.Src), slices.Index(s.book.NodeTypes, t.Dst)
}

func (s *Part) features(list disk.Object[npy.Described], owner string, rows int64, into map[string]disk.Array) error {
	for _, f := range list {
		a, err := s.Open(fmt.Sprintf("feature %q", owner+"/"+f.Name), f.Value)
		if err != nil {
			return err
		}
		if len(a.Shape) == 0 || a.Shape[0] != rows || a.Fortran {
			return a.File.Bad(-1, fmt.Sprintf("%d rows of %s, in C order", rows, a.Name), "shape %v", a.Shape)
		}
		into[owner+"/"+f.Name] = *a
	}
	return nil
}

// Features are those of edges or of nodes, by name.
func (s *Part) Features(edge bool) map[string]disk.Array {
	if edge {
		return s.edgeFeats
	}
	return s.nodeFeats
}
