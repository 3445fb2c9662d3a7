// Package sar reads and writes partitions in SAR's own format: every part is a directory of
// .npy files that are mapped as they lie, with a description.
package sar

import (
	"fmt"
	"slices"
	"strings"

	"sar/core/graph"
	"sar/core/internal/dtypes"
	"sar/core/internal/must"
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
	defer must.Return(&err)
	data := must.Get(disk.ReadJSON("the description of the part", s.Description))
	var top description
	must.Do(disk.Decode(s.Description, 0, data, &top, "the description of a part"))
	s.Want(top.Format == partFormat, fmt.Sprintf("the format %q", partFormat), "%q", top.Format)
	must.Do(disk.WantSeal(s.Description, data))
	s.Want(top.Part == part && top.Partitioning == partitioning,
		fmt.Sprintf("part %d of partitioning %s", part, partitioning), "part %d of %s: these files are of different runs",
		top.Part, top.Partitioning)
	_, err = fmt.Sscanf(top.Partitioning, "%x", &s.Partitioning)
	s.Want(err == nil, "the number of a partitioning", "%q", top.Partitioning)
	s.numHalo = top.Halo
	s.Want(s.numHalo >= 0 && s.numHalo <= disk.MaxCount, `"halo", a number of nodes`, "%d", s.numHalo)
	s.nodeTypes(top.NodeTypes)
	s.edgeTypes(top.Relations)
	return s, nil
}

func (s *Part) nodeTypes(list disk.Object[partNodesJSON]) {
	s.Want(len(list) == len(s.book.NodeTypes), fmt.Sprintf("the node types %q", s.book.NodeTypes), "%d types", len(list))
	for t, of := range list {
		name, rows := s.book.NodeTypes[t], s.book.NumNodes(t, s.part)
		s.Want(of.Name == name && of.Value.Rows == rows,
			fmt.Sprintf("%d nodes of type %q, as the description of all parts has them", rows, name), "%d of %q", of.Value.Rows,
			of.Name)
		if of.Value.IDs != nil {
			s.IDs[name] = must.Get(s.Inside(fmt.Sprintf("the ids of %q", name), of.Value.IDs.File))
		}
		s.features(of.Value.Features, name, rows, s.nodeFeats)
	}
}

func (s *Part) edgeTypes(list []partRelationJSON) {
	s.Want(len(list) == len(s.book.EdgeTypes), fmt.Sprintf("%d relations", len(s.book.EdgeTypes)), "%d", len(list))
	for t, of := range list {
		name, edges := s.book.EdgeTypes[t].String(), s.book.NumEdges(t, s.part)
		s.Want(strings.Join(of.Type, ":") == name && of.Edges == edges,
			fmt.Sprintf("%d edges of relation %s, as the description of all parts has them", edges, name), "%d of %q", of.Edges,
			of.Type)
		r := relation{partRelationJSON: of, arrays: map[string]*disk.Array{}}
		for _, a := range of.Arrays {
			opened := must.Get(s.Open(fmt.Sprintf("%q of %s", a.Name, name), a.Value))
			must.Do(opened.WantVector(opened.Len))
			r.arrays[a.Name] = opened
		}
		s.lengths(&r, t)
		s.relations = append(s.relations, r)
		s.features(of.Features, name, edges, s.edgeFeats)
		if r.arrays[edgeStartArray] != nil {
			s.edgeFeats[name+"/"+input.OrigID] = disk.Array{File: r.arrays[edgeStartArray].File,
				Name: "the original ids of edges", DType: dtypes.Int64, Shape: []int64{edges}, Len: edges,
				Derive: r.origIDs}
		}
	}
}

// lengths checks that a relation has the arrays that it needs, of the right lengths.
func (s *Part) lengths(r *relation, relation int) {
	name := s.book.EdgeTypes[relation].String()
	src, dst := s.ends(relation)
	rows, own := s.book.NumNodes(dst, s.part), s.book.NumNodes(src, s.part)
	s.ascend(r.Columns, own, "columns", name)
	s.ascend(r.Sends, 0, "sends", name)
	s.travels(r, name)
	columns := r.Columns[len(r.Columns)-1]
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
		_, known := want[a.Name]
		s.Want(known, fmt.Sprintf("arrays of %s that belong together", name), "%q", a.Name)
	}
	for array, n := range want {
		a := r.arrays[array]
		s.Want(a != nil, fmt.Sprintf("the array %q of %s", array, name), "none")
		must.Do(a.WantVector(n))
		wide := array == outDegreeArray || array == edgeStartArray
		a.File.Want(a.DType == dtypes.Int32 || wide && a.DType == dtypes.Int64, -1, fmt.Sprintf("%s as int32", a.Name), "%s",
			a.DType)
	}
}

// ascend checks ends by round.
func (s *Part) ascend(ends []int64, first int64, key, relation string) {
	s.Want(len(ends) == s.book.Parts && ends[0] == first && slices.IsSorted(ends) && ends[len(ends)-1] <= disk.MaxCount,
		fmt.Sprintf("%q of %s to be %d numbers that ascend from %d", key, relation, s.book.Parts, first), "%v", ends)
}

// travels checks how many columns of each round are of rows that travel.
func (s *Part) travels(r *relation, name string) {
	if r.Travels == nil {
		return
	}
	s.Want(len(r.Travels) == len(r.Columns), fmt.Sprintf(`"travels" of %s to have %d rounds`, name, len(r.Columns)), "%d",
		len(r.Travels))
	for q := 1; q < len(r.Columns); q++ {
		lead, n := r.Travels[q].Leading, r.Columns[q]-r.Columns[q-1]
		s.Want(lead[0] >= 0 && slices.IsSorted(lead[:]) && int64(lead[graph.NumPrices-1]) <= n,
			fmt.Sprintf("rows of %s that travel in round %d, from 0 to at most %d", name, q, n), "%v", lead)
	}
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

func (s *Part) features(list disk.Object[npy.Described], owner string, rows int64, into map[string]disk.Array) {
	for _, f := range list {
		a := must.Get(s.Open(fmt.Sprintf("feature %q", owner+"/"+f.Name), f.Value))
		a.File.Want(len(a.Shape) > 0 && a.Shape[0] == rows && !a.Fortran, -1,
			fmt.Sprintf("%d rows of %s, in C order", rows, a.Name), "shape %v", a.Shape)
		into[owner+"/"+f.Name] = *a
	}
}

// Features are those of edges or of nodes, by name.
func (s *Part) Features(edge bool) map[string]disk.Array {
	if edge {
		return s.edgeFeats
	}
	return s.nodeFeats
}
