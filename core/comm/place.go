package comm

import (
	"fmt"
	"hash/fnv"
)

// Place says what an operation belongs to, as far as its arguments do not show it. Operations
// of equal rows that two ranks begin in another order would otherwise pair, and give wrong
// numbers.
type Place struct {
	// Layer is the number of the layer that the operation is part of, which is the same on
	// every rank, below MaxLayers; 0: not known, which goes with any.
	Layer uint32
	// Of is the number of the forward operation that a backward operation belongs to, else 0.
	Of uint64
	// Name is what messages call the operation.
	Name string
}

const (
	layerBits = 12
	// MaxLayers is one more than the greatest number of a layer.
	MaxLayers = 1 << layerBits
	// recalled is how many operations a communicator can name after they have ended.
	recalled = 1024
)

// content is what the frames of an operation carry: a hash of what is sent and for which forward
// operation, and the layer, which is compared where both ranks know theirs.
func content(sends string, p Place) uint32 {
	var sum uint32
	if sends != "" || p.Of != 0 {
		h := fnv.New32a()
		_, _ = fmt.Fprintf(h, "%s of %d", sends, p.Of)
		sum = max(h.Sum32()>>layerBits, 1) // 0 stands for no text
	}
	return sum<<layerBits | p.Layer%MaxLayers
}

// layerOf is the number of the layer in what content made.
func layerOf(content uint32) uint32 { return content % MaxLayers }

// sameContent tells whether two ranks in one operation mean the same.
func sameContent(a, b uint32) bool {
	return a>>layerBits == b>>layerBits && (a == b || layerOf(a) == 0 || layerOf(b) == 0)
}

// places is what a communicator knows of the places of its operations.
type places struct {
	next   Place            // of what begins
	names  [recalled]string // of operations, by their number
	layers map[uint32]string
}

// SetPlace says what the operations that begin from now on belong to. It returns the number of
// the first of them.
func (c *Communicator) SetPlace(p Place) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places.next = p
	c.places.names[(c.Seq+1)%recalled] = p.Name
	return c.Seq + 1
}

// NameLayer says what messages call a layer.
func (c *Communicator) NameLayer(layer uint32, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.places.layers == nil {
		c.places.layers = map[uint32]string{}
	}
	c.places.layers[layer] = name
}

// belongs is what messages say of an operation in a place.
func (p Place) belongs() string {
	said := ""
	if p.Name != "" {
		said = " of " + p.Name
	}
	if p.Of != 0 {
		said += fmt.Sprintf(" (whose forward was operation %d)", p.Of)
	}
	return said
}

// placesDiffer tells whether a peer's operation differs from op in nothing but its place.
func (op *Op) placesDiffer(theirs Step) bool {
	mine, other := op.step.Content, theirs.Content
	return mine>>layerBits == other>>layerBits || op.place.Of != 0 && op.c.forwardOf(op, other) != 0
}

// theirPlace is the place of a peer's operation, as far as this rank can tell from what its
// frames carry.
func (op *Op) theirPlace(theirs Step) string {
	c, of := op.c, op.c.forwardOf(op, theirs.Content)
	c.mu.Lock()
	defer c.mu.Unlock()
	if of != 0 {
		return Place{Of: of, Name: c.places.names[of%recalled]}.belongs()
	}
	if name := c.places.layers[layerOf(theirs.Content)]; name != "" {
		return Place{Name: name}.belongs()
	}
	return " of another layer"
}

// forwardOf finds the forward operation of a peer's operation that sends what op does; 0: there is none.
func (c *Communicator) forwardOf(op *Op, theirs uint32) uint64 {
	if op.place.Of == 0 {
		return 0
	}
	for of := op.seq; of > 0 && of+recalled > op.seq; of-- {
		if content(op.sends, Place{Of: of})>>layerBits == theirs>>layerBits {
			return of
		}
	}
	return 0
}
