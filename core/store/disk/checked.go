package disk

import (
	"fmt"
	"hash/crc32"
	"sort"
	"sync"
)

// castagnoli is the polynomial of CRC-32C, for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumRange is a range of a file that is an array, or what stands between two,
// with a checksum for each block of it.
type sumRange struct {
	Array     string // "" for a header
	Off, Size int64
	block     int64 // bytes of a block; the last one may be shorter
	sums      []uint32
}

// maxBlock bounds the memory that holding a part of a block against its checksum takes.
const maxBlock = 1 << 20

func (r *sumRange) What() string {
	if r.Array == "" {
		return "the header"
	}
	return r.Array
}

// bounds are where block k begins and ends.
func (r *sumRange) bounds(k int64) (lo, hi int64) {
	lo = r.Off + k*r.block
	return lo, min(lo+r.block, r.Off+r.Size)
}

func (r *sumRange) blocks() int64 { return (r.Size-1)/r.block + 1 }

// Checksums are the ranges of a file, one after the other. They cover all of it.
type Checksums []sumRange

// of is the range that holds a byte of the file.
func (s Checksums) of(off int64) *sumRange {
	return &s[sort.Search(len(s), func(i int) bool { return s[i].Off+s[i].Size > off })]
}

// ReadAt fills p from off and holds every block that it reads from against its
// checksum, before any of it is used. Files without checksums are read as they are.
func (f *File) ReadAt(p []byte, off int64, what string) error {
	if f.Sums == nil || off < 0 || off > f.Size-int64(len(p)) {
		return f.ReadRaw(p, off, what)
	}
	for len(p) > 0 {
		r := f.Sums.of(off)
		k := (off - r.Off) / r.block
		lo, hi := r.bounds(k)
		if off == lo && int64(len(p)) >= hi-lo {
			if err := f.readBlock(r, k, p[:hi-lo]); err != nil {
				return err
			}
			p, off = p[hi-lo:], hi
			continue
		}
		whole := blockPool.Get().(*[]byte)
		b := (*whole)[:hi-lo]
		err := f.readBlock(r, k, b)
		n := 0
		if err == nil {
			n = copy(p, b[off-lo:])
		}
		blockPool.Put(whole)
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

var blockPool = sync.Pool{New: func() any { b := make([]byte, maxBlock); return &b }}

// readBlock reads block k of a range into p, which has its size, and checks it.
func (f *File) readBlock(r *sumRange, k int64, p []byte) error {
	sum, err := f.sumBlock(r, k, p)
	if err == nil && sum != r.sums[k] {
		err = f.damage(r, k, k+1)
	}
	return err
}

// sumBlock reads block k of a range into p and returns its checksum.
func (f *File) sumBlock(r *sumRange, k int64, p []byte) (uint32, error) {
	lo, _ := r.bounds(k)
	if err := f.ReadRaw(p, lo, r.What()); err != nil {
		return 0, err
	}
	return crc32.Checksum(p, castagnoli), nil
}

// eachBlock calls do with the checksum of each block of a range as it is in the
// file now, from a few goroutines.
func (f *File) eachBlock(r *sumRange, do func(k int64, sum uint32) error) error {
	return inChunks(r.Size, func(lo, hi int64) error {
		b := blockPool.Get().(*[]byte)
		defer blockPool.Put(b)
		for k := (lo + r.block - 1) / r.block; k*r.block < hi; k++ {
			from, to := r.bounds(k)
			sum, err := f.sumBlock(r, k, (*b)[:to-from])
			if err == nil {
				err = do(k, sum)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// damage is the error for the blocks of a range from first to the one before end.
func (f *File) damage(r *sumRange, first, end int64) *FormatError {
	lo, _ := r.bounds(first)
	_, hi := r.bounds(end - 1)
	return &FormatError{File: f.Name, Offset: lo, End: hi, Want: r.What() + " as written, by its checksum",
		Got: "other bytes"}
}

// damaged reads ranges of a file and returns where they differ from their
// checksums. Neighbouring blocks are one place.
func (f *File) damaged(list Checksums) (places []*FormatError, err error) {
	for i := range list {
		r := &list[i]
		bad := make([]bool, r.blocks())
		err := f.eachBlock(r, func(k int64, sum uint32) error {
			bad[k] = sum != r.sums[k]
			return nil
		})
		if err != nil {
			return nil, err
		}
		for k, n := int64(0), int64(0); k < r.blocks(); k += n + 1 {
			for n = 0; k+n < r.blocks() && bad[k+n]; n++ {
			}
			if n > 0 {
				places = append(places, f.damage(r, k, k+n))
			}
		}
	}
	return places, nil
}

// Check holds ranges of a file against their checksums.
func (f *File) Check(list Checksums) error {
	places, err := f.damaged(list)
	if err == nil && len(places) > 0 {
		err = places[0]
	}
	return err
}

// fits says whether a file has the size that its checksums cover.
func (f *File) fits(sums Checksums) error {
	last := sums[len(sums)-1]
	if size := last.Off + last.Size; size != f.Size {
		return f.Bad(min(size, f.Size), fmt.Sprintf("the end of the file after the %d bytes that were written", size),
			"it after %d", f.Size)
	}
	return nil
}

// Attach makes sums those of a file, and checks its size and its headers, on
// which everything that is read from it depends.
func (f *File) Attach(sums Checksums) error {
	if err := f.fits(sums); err != nil {
		return err
	}
	f.Sums = sums
	var headers Checksums
	for _, r := range sums {
		if r.Array == "" {
			headers = append(headers, r)
		}
	}
	return f.Check(headers)
}

// sumUp computes the checksums of a file that holds these arrays. Everything
// between them counts as headers.
func (f *File) sumUp(arrays []Array) (Checksums, error) {
	arrays = append([]Array(nil), arrays...)
	sort.Slice(arrays, func(i, j int) bool { return arrays[i].Offset < arrays[j].Offset })
	var out Checksums
	var at int64
	add := func(array string, size, block int64) {
		if size > 0 {
			out = append(out, sumRange{Array: array, Off: at, Size: size, block: block})
			at += size
		}
	}
	for i := range arrays {
		a := &arrays[i]
		add("", a.Offset-at, Batch)
		// What a stream of the array reads at a time is a block.
		add(a.Name, a.Bytes(), Batch*int64(a.DType.Size()))
	}
	add("", f.Size-at, Batch)
	for i := range out {
		r := &out[i]
		r.sums = make([]uint32, r.blocks())
		err := f.eachBlock(r, func(k int64, sum uint32) error {
			r.sums[k] = sum
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
