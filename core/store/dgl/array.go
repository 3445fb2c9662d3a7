package dgl

import (
	"fmt"

	"sar/core/internal/dtypes"
	"sar/core/store/disk"
)

// Magic numbers of DGL's files.
const (
	magicArray    = 0xDD5E40F096B4A13F
	magicTensors  = 0xDD5A9FBE3FA2443F
	magicGraphs   = 0xDD2E4FF046B4A13F
	magicHetero   = 0xDD589FBE35224ABF
	magicImmGraph = 0xDD3C5FFE20046ABF
	magicUnit     = 0xDD2E60F0F6B4A127
	magicCSR      = 0xDD6CD31205DFF127
	magicCOO      = 0xDD61FFD305DFF127
)

const (
	deviceCPU      = 1
	arrayMinBytes  = 8 + 8 + 8 + 4 + 4 + 8
	stringMinBytes = 8
)

// ndarray reads the header of an NDArray and steps over its data.
func (c *cursor) ndarray(what string) disk.Array {
	c.magic(magicArray, what)
	c.exactly(0, "the reserved word of "+what)
	at := c.off
	dev := c.i32("the device of " + what)
	c.want(dev == deviceCPU, at, what+" on the CPU (device type 1)", "device type %d", dev)
	c.i32("the device number of " + what)
	at = c.off
	ndim := c.i32("the number of dimensions of " + what)
	c.want(ndim >= 0 && ndim <= disk.MaxDims, at, fmt.Sprintf("%s of 0 to %d dimensions", what, disk.MaxDims), "%d",
		ndim)
	at = c.off
	code, bits, lanes := c.u8("the type of "+what), c.u8("the type of "+what), c.u16("the type of "+what)
	dtype, ok := dtypes.Of(code, bits)
	c.want(ok && lanes == 1, at, "a known type of numbers of "+what, "code %d, %d bits, %d lanes", code, bits, lanes)
	if c.err != nil {
		return disk.Array{}
	}
	at = c.off
	shape := make([]int64, ndim)
	for i := range shape {
		shape[i] = c.i64("the shape of " + what)
	}
	n, ok := disk.Elements(shape, dtype.Size(), c.left())
	c.want(ok, at, fmt.Sprintf("a shape of %s that fits the %d bytes left of the file", what, c.left()), "%v of %s", shape,
		dtype)
	at = c.off
	size := n * int64(dtype.Size())
	nbytes := c.i64("the size of " + what)
	c.want(nbytes == size, at, fmt.Sprintf("%d bytes of %s, %s of shape %v", size, what, dtype, shape), "%d bytes", nbytes)
	a := disk.Array{File: c.f, Name: what, Offset: c.off, DType: dtype, Shape: shape, Len: n}
	c.skip(size, what)
	if c.err != nil {
		return disk.Array{}
	}
	return a
}

type namedArray struct {
	name string
	disk.Array
}

// named reads vector<pair<string, NDArray>>.
func (c *cursor) named(what string) []namedArray {
	var out []namedArray
	seen := map[string]bool{}
	for n := c.count(stringMinBytes+arrayMinBytes, what); n > 0 && c.err == nil; n-- {
		at := c.off
		name := c.str("the name of one of " + what)
		c.want(!seen[name], at, "each name once among "+what, "%q again", name)
		seen[name] = true
		out = append(out, namedArray{name, c.ndarray(fmt.Sprintf("%q of %s", name, what))})
	}
	return out
}

// atEnd complains about bytes after the last thing a file should hold.
func (c *cursor) atEnd() {
	c.want(c.left() == 0, c.off, "the end of the file", "%d more bytes", c.left())
}

// parseTensors reads the headers of what dgl.data.utils.save_tensors wrote.
func parseTensors(f *disk.File) ([]namedArray, error) {
	c := newCursor(f)
	c.magic(magicTensors, "a file of tensors")
	at := c.off
	n := c.u64("the number of tensors")
	out := c.named("the tensors")
	c.want(n == uint64(len(out)), at, fmt.Sprintf("the number of tensors that follow, %d", len(out)), "%d", n)
	c.atEnd()
	return out, c.err
}

// tensorArrays is where the arrays of such a file lie.
func tensorArrays(f *disk.File) ([]disk.Array, error) {
	list, err := parseTensors(f)
	if err != nil {
		return nil, err
	}
	out := make([]disk.Array, len(list))
	for i, a := range list {
		out[i] = a.Array
		out[i].Name = fmt.Sprintf("feature %q", a.name)
	}
	return out, nil
}
