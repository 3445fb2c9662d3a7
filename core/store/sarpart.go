package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sar/core/graph"
)

const (
	partitionFormat = "SAR partition 1" // of the description of all parts
	partFormat      = "SAR part 1"      // of the description of one
	partDescription = "part.json"
)

// partJSON is the description of a part in SAR's format. It names all files, relative to
// its directory.
type partJSON struct {
	Format       string                 `json:"format"`
	Partitioning string                 `json:"partitioning"` // that of the description of all parts
	Part         int                    `json:"part"`
	Halo         int64                  `json:"halo"` // nodes that it reads of its peers
	NodeTypes    ordered[partNodesJSON] `json:"node_types"`
	Relations    []partRelationJSON     `json:"relations"`
}

type partNodesJSON struct {
	Rows     int64             `json:"rows"`
	IDs      *fileJSON         `json:"ids,omitempty"` // the users' ids of own nodes, a Parquet file
	Features ordered[fileJSON] `json:"features"`
}

// partRelationJSON is a relation: the arrays of graph.Stored, and what the part's peers read.
type partRelationJSON struct {
	Type  []string `json:"type"`
	Edges int64    `json:"edges"`
	// Columns are, by round, one past the last column of the rows of peer part-r; the first
	// number is own rows. Sends are likewise one past the last of the rows that part+r reads.
	Columns  []int64           `json:"columns"`
	Sends    []int64           `json:"sends"`
	Arrays   ordered[fileJSON] `json:"arrays"`
	Features ordered[fileJSON] `json:"features"`
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

// sarPart is an opened part in SAR's format.
type sarPart struct {
	path         string // of its description
	book         *graph.Book
	part         int
	partitioning int64
	files        []*file
	names        []string // of the files, as the description has them
	sums         map[string]checksums
	relations    []sarRelation
	ids          map[string]string // path of the users' ids by node type
	nodeFeats    map[string]array
	edgeFeats    map[string]array
	numHalo      int64
	halo         []int64 // homogenized ids of the nodes that are read of peers, ascending
}

type sarRelation struct {
	partRelationJSON
	arrays map[string]*array
}

func (s *sarPart) bad(want, got string, args ...any) error {
	return &FormatError{File: s.path, Offset: -1, Want: want, Got: fmt.Sprintf(got, args...)}
}

// openSarPart opens a part. sums are nil where it has no checksums.
func openSarPart(path string, book *graph.Book, part int, partitioning string, sums map[string]checksums) (s *sarPart, err error) {
	s = &sarPart{path: path, book: book, part: part, sums: sums, ids: map[string]string{},
		nodeFeats: map[string]array{}, edgeFeats: map[string]array{}}
	defer func() {
		if err != nil {
			s.close()
			s = nil
		}
	}()
	data, err := readJSON("the description of the part", s.path)
	if err != nil {
		return s, err
	}
	var top partJSON
	if err := json.Unmarshal(data, &top); err != nil {
		return s, jsonError(s.path, 0, "the description of a part", err)
	}
	if top.Format != partFormat {
		return s, s.bad(fmt.Sprintf("the format %q", partFormat), "%q", top.Format)
	}
	if sealed, err := checkSeal(s.path, data); err != nil {
		return s, err
	} else if !sealed {
		return s, s.bad(fmt.Sprintf("the key %q, the checksum of this file", sealKey), "no such key")
	}
	if top.Part != part || top.Partitioning != partitioning {
		return s, s.bad(fmt.Sprintf("part %d of partitioning %s", part, partitioning), "part %d of %s: these files are of different runs", top.Part, top.Partitioning)
	}
	if _, err := fmt.Sscanf(top.Partitioning, "%x", &s.partitioning); err != nil {
		return s, s.bad("the number of a partitioning", "%q", top.Partitioning)
	}
	if s.numHalo = top.Halo; s.numHalo < 0 || s.numHalo > maxCount {
		return s, s.bad(`"halo", a number of nodes`, "%d", s.numHalo)
	}
	if err := s.nodeTypes(top.NodeTypes); err != nil {
		return s, err
	}
	return s, s.edgeTypes(top.Relations)
}

func (s *sarPart) nodeTypes(list ordered[partNodesJSON]) error {
	if len(list) != len(s.book.NodeTypes) {
		return s.bad(fmt.Sprintf("the node types %q", s.book.NodeTypes), "%d types", len(list))
	}
	for t, of := range list {
		name, rows := s.book.NodeTypes[t], s.book.NumNodes(t, s.part)
		if of.name != name || of.value.Rows != rows {
			return s.bad(fmt.Sprintf("%d nodes of type %q, as the description of all parts has them", rows, name), "%d of %q", of.value.Rows, of.name)
		}
		if of.value.IDs != nil {
			path, err := s.inside(of.value.IDs.File)
			if err != nil {
				return err
			}
			s.ids[name] = path
		}
		if err := s.features(of.value.Features, name, rows, s.nodeFeats); err != nil {
			return err
		}
	}
	return nil
}

func (s *sarPart) edgeTypes(list []partRelationJSON) error {
	if len(list) != len(s.book.EdgeTypes) {
		return s.bad(fmt.Sprintf("%d relations", len(s.book.EdgeTypes)), "%d", len(list))
	}
	for t, of := range list {
		name, edges := s.book.EdgeTypes[t].String(), s.book.EdgeEnd[t][s.part]-s.book.EdgeStart[t][s.part]
		if strings.Join(of.Type, ":") != name || of.Edges != edges {
			return s.bad(fmt.Sprintf("%d edges of relation %s, as the description of all parts has them", edges, name), "%d of %q", of.Edges, of.Type)
		}
		r := sarRelation{partRelationJSON: of, arrays: map[string]*array{}}
		for _, a := range of.Arrays {
			what := fmt.Sprintf("%q of %s", a.name, name)
			opened, err := s.open(what, a.value)
			if err != nil {
				return err
			}
			if err := opened.wantIDs(opened.n); err != nil {
				return err
			}
			r.arrays[a.name] = opened
		}
		if err := s.lengths(&r, t); err != nil {
			return err
		}
		s.relations = append(s.relations, r)
		if err := s.features(of.Features, name, edges, s.edgeFeats); err != nil {
			return err
		}
		if r.arrays[edgeStartArray] != nil {
			s.edgeFeats[name+"/"+origID] = array{f: r.arrays[edgeStartArray].f, what: "the original ids of edges", dtype: Int64, shape: []int64{edges}, n: edges,
				derive: func(dst []byte) error { return r.origIDs(dst) }}
		}
	}
	return nil
}

// lengths checks that a relation has the arrays that it needs, of the right lengths.
func (s *sarPart) lengths(r *sarRelation, relation int) error {
	name := s.book.EdgeTypes[relation].String()
	src, dst := s.ends(relation)
	if err := s.ascend(r.Columns, s.book.NumNodes(src, s.part), "columns", name); err != nil {
		return err
	}
	if err := s.ascend(r.Sends, 0, "sends", name); err != nil {
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
		if _, known := want[a.name]; !known {
			return s.bad(fmt.Sprintf("arrays of %s that belong together", name), "%q", a.name)
		}
	}
	for array, n := range want {
		a := r.arrays[array]
		if a == nil {
			return s.bad(fmt.Sprintf("the array %q of %s", array, name), "none")
		}
		if err := a.wantIDs(n); err != nil {
			return err
		}
		if wide := array == outDegreeArray || array == edgeStartArray; a.dtype != Int32 && !(wide && a.dtype == Int64) {
			return a.f.bad(-1, fmt.Sprintf("%s as int32", a.what), "%s", a.dtype)
		}
	}
	return nil
}

// ascend checks ends by round.
func (s *sarPart) ascend(ends []int64, first int64, key, relation string) error {
	if len(ends) != s.book.Parts || ends[0] != first || !slices.IsSorted(ends) || ends[len(ends)-1] > maxCount {
		return s.bad(fmt.Sprintf("%q of %s to be %d numbers that ascend from %d", key, relation, s.book.Parts, first), "%v", ends)
	}
	return nil
}

// ends are the node types of a relation.
func (s *sarPart) ends(relation int) (src, dst int) {
	t := s.book.EdgeTypes[relation]
	return slices.Index(s.book.NodeTypes, t.Src), slices.Index(s.book.NodeTypes, t.Dst)
}

func (s *sarPart) features(list ordered[fileJSON], owner string, rows int64, into map[string]array) error {
	for _, f := range list {
		a, err := s.open(fmt.Sprintf("feature %q", owner+"/"+f.name), f.value)
		if err != nil {
			return err
		}
		if len(a.shape) == 0 || a.shape[0] != rows || a.fortran {
			return a.f.bad(-1, fmt.Sprintf("%d rows of %s, in C order", rows, a.what), "shape %v", a.shape)
		}
		into[owner+"/"+f.name] = *a
	}
	return nil
}

// inside is the path of a file that the description names.
func (s *sarPart) inside(name string) (string, error) {
	if name == "" || filepath.IsAbs(name) || strings.ContainsRune(name, 0) {
		return "", s.bad("paths inside the directory", "%q", name)
	}
	path := filepath.Join(filepath.Dir(s.path), filepath.FromSlash(name))
	if err := checkInside(s.path, name, path); err != nil {
		return "", err
	}
	s.names = append(s.names, name)
	return path, nil
}

func (s *sarPart) open(what string, of fileJSON) (*array, error) {
	path, err := s.inside(of.File)
	if err != nil {
		return nil, err
	}
	a, err := openNpy(what, path)
	if err != nil {
		return nil, fmt.Errorf("%w (named by %s)", err, s.path)
	}
	s.files = append(s.files, a.f)
	if of.DType == BFloat16.String() && a.dtype == Uint16 { // which numpy does not have
		a.dtype = BFloat16
	}
	if err := of.agrees(s.path, a); err != nil {
		return nil, err
	}
	if s.sums == nil {
		return a, nil
	}
	if s.sums[of.File] == nil {
		return nil, noSums(s.path, of.File)
	}
	return a, a.f.attach(s.sums[of.File])
}

func (s *sarPart) close() error {
	var err error
	for _, f := range s.files {
		err = errors.Join(err, f.Close())
	}
	return err
}
