package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"unsafe"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"sar/core/session"
)

// nodes are the features [n, f], classes [n] and masks [n] of a worker's own nodes.
type nodes struct {
	features         *mat.Dense
	labels           []int64
	train, val, test []byte
}

// work is one worker: it joins the others, loads its part and trains.
func work(o options) (err error) {
	rank, err1 := strconv.Atoi(os.Getenv("RANK"))
	world, err2 := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	port, err3 := strconv.Atoi(os.Getenv("MASTER_PORT"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("RANK, WORLD_SIZE and MASTER_PORT must be numbers: %w", err)
	}
	s, err := session.Open(session.Config{
		Rank: rank, World: world, MasterAddr: os.Getenv("MASTER_ADDR"), MasterPort: port, Transport: "auto",
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.Abort(err.Error()) // the others would wait for this worker
		}
		err = errors.Join(err, s.Close())
	}()
	part, err := session.OpenPartition(description(o), rank, 0)
	if err != nil {
		return err
	}
	defer part.Close()
	graph, err := s.Build(part, 0)
	if err != nil {
		return err
	}
	defer graph.Free()
	own, err := load(part)
	if err != nil {
		return err
	}
	return fit(o, s, graph, own)
}

// load reads the worker's own rows of the node features.
func load(p *session.Partition) (nodes, error) {
	var own nodes
	var x []byte
	width := 0
	for _, f := range p.Info().NodeFeatures {
		n := int(f.Shape[0])
		var err error
		switch f.Name {
		case "_N/features":
			width = int(f.Shape[1])
			x = make([]byte, n*width) // Cora's are uint8
			err = p.Read(false, f.Name, x, f.DType, f.Shape)
		case "_N/labels":
			own.labels = make([]int64, n)
			err = p.Read(false, f.Name, bytes(own.labels), f.DType, f.Shape)
		case "_N/train_mask", "_N/val_mask", "_N/test_mask":
			mask := make([]byte, n)
			err = p.Read(false, f.Name, mask, f.DType, f.Shape)
			*map[string]*[]byte{"_N/train_mask": &own.train, "_N/val_mask": &own.val, "_N/test_mask": &own.test}[f.Name] = mask
		}
		if err != nil {
			return own, err
		}
	}
	if x == nil || own.labels == nil || own.train == nil || own.val == nil || own.test == nil {
		return own, errors.New("the partition lacks features, labels or one of the masks train_mask, val_mask, test_mask")
	}
	own.features = mat.NewDense(len(own.labels), width, nil)
	for i := range own.labels { // rows add up to 1
		row := own.features.RawRowView(i)
		for j, v := range x[i*width : (i+1)*width] {
			row[j] = float64(v)
		}
		floats.Scale(1/max(1, floats.Sum(row)), row)
	}
	return own, nil
}

// fit trains the network and prints its accuracy.
func fit(o options, s *session.Session, g *session.Graph, own nodes) error {
	totals := []float64{count(own.train), float64(slices.Max(append(own.labels, -1)))}
	if err := allReduce(s, totals[:1], "sum"); err != nil {
		return err
	}
	if err := allReduce(s, totals[1:], "max"); err != nil {
		return err
	}
	nTrain, classes := totals[0], int(totals[1])+1

	// The same weights on every worker, and a stream of dropout of its own on each.
	weights := rand.New(rand.NewPCG(o.seed, 0))
	drops := rand.New(rand.NewPCG(o.seed, uint64(1+s.Rank())))
	_, width := own.features.Dims()
	first, err := newConv(g, width, o.hidden, weights)
	if err != nil {
		return err
	}
	second, err := newConv(g, o.hidden, classes, weights)
	if err != nil {
		return err
	}
	adam := newAdam(o, first, second)

	for epoch := 1; epoch <= o.epochs; epoch++ {
		h, err := first.forward(dropout(own.features, o.dropout, drops), true)
		if err != nil {
			return err
		}
		dropped := dropout(relu(h), o.dropout, drops)
		logits, err := second.forward(dropped, true)
		if err != nil {
			return err
		}
		loss, grad := crossEntropy(logits, own.labels, own.train, nTrain)
		if grad, err = second.backward(grad); err != nil {
			return err
		}
		var gradH mat.Dense
		gradH.Mul(grad, second.weight.T())
		gradH.Apply(func(i, j int, v float64) float64 {
			if dropped.At(i, j) == 0 { // by dropout or by relu
				return 0
			}
			return v / (1 - o.dropout)
		}, &gradH)
		if _, err = first.backward(&gradH); err != nil {
			return err
		}
		if err := adam.step(s, &loss); err != nil {
			return err
		}
		if epoch%50 == 0 || epoch == o.epochs {
			if err := report(s, epoch, loss, own, first, second); err != nil {
				return err
			}
		}
	}
	return nil
}

// report prints loss and accuracies over all workers. Collective.
func report(s *session.Session, epoch int, loss float64, own nodes, first, second *conv) error {
	h, err := first.forward(own.features, false)
	if err != nil {
		return err
	}
	logits, err := second.forward(relu(h), false)
	if err != nil {
		return err
	}
	sums := make([]float64, 6) // right and all, of each mask
	for m, mask := range [][]byte{own.train, own.val, own.test} {
		for i := range mask {
			if mask[i] != 0 && floats.MaxIdx(logits.RawRowView(i)) == int(own.labels[i]) {
				sums[2*m]++
			}
		}
		sums[2*m+1] = count(mask)
	}
	if err := allReduce(s, sums, "sum"); err != nil {
		return err
	}
	if s.Rank() == 0 {
		fmt.Printf("epoch %d  loss %.4f  accuracy: train %.1f %%, val %.1f %%, test %.1f %%\n", epoch, loss,
			100*sums[0]/sums[1], 100*sums[2]/sums[3], 100*sums[4]/sums[5])
	}
	return nil
}

func count(mask []byte) (n float64) {
	for _, m := range mask {
		n += float64(m)
	}
	return n
}

// adam is Adam with weight decay, on the gradients of all workers.
type adam struct {
	o            options
	params       []*mat.Dense
	grads        []*mat.Dense
	first, other [][]float64 // moments
	steps        int
}

func newAdam(o options, layers ...*conv) *adam {
	a := &adam{o: o}
	for _, l := range layers {
		a.params = append(a.params, l.weight, l.bias)
		a.grads = append(a.grads, l.gradWeight, l.gradBias)
	}
	for _, p := range a.params {
		n := len(p.RawMatrix().Data)
		a.first, a.other = append(a.first, make([]float64, n)), append(a.other, make([]float64, n))
	}
	return a
}

// step adds up gradients and loss over the workers and changes the parameters,
// alike on every worker. Collective.
func (a *adam) step(s *session.Session, loss *float64) error {
	flat := []float64{*loss} // one message for all
	for _, g := range a.grads {
		flat = append(flat, g.RawMatrix().Data...)
	}
	if err := allReduce(s, flat, "sum"); err != nil {
		return err
	}
	*loss, flat = flat[0], flat[1:]
	a.steps++
	const b1, b2, eps = 0.9, 0.999, 1e-8
	c1, c2 := 1-math.Pow(b1, float64(a.steps)), 1-math.Pow(b2, float64(a.steps))
	for k, p := range a.params {
		values := p.RawMatrix().Data
		for i := range values {
			g := flat[i] + a.o.decay*values[i]
			a.first[k][i] = b1*a.first[k][i] + (1-b1)*g
			a.other[k][i] = b2*a.other[k][i] + (1-b2)*g*g
			values[i] -= a.o.rate * (a.first[k][i] / c1) / (math.Sqrt(a.other[k][i]/c2) + eps)
		}
		flat = flat[len(values):]
	}
	return nil
}

// allReduce adds up x over the workers, or takes the largest. Collective.
func allReduce(s *session.Session, x []float64, how string) error {
	op, err := session.ParseReduceOp(map[string]int{"sum": 0, "max": 2}[how])
	if err != nil {
		return err
	}
	dtype, err := session.ParseDType("float64")
	if err != nil {
		return err
	}
	return s.AllReduce(session.Reduce, bytes(x), dtype, op)
}

// bytes is the memory of x, for the calls of the engine that take any type.
func bytes[T int64 | float64](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))
}
