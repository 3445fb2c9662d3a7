package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"sar/core/session"
)

// nodes are the features [n, f], classes [n] and masks [n] of a worker's own nodes.
type nodes struct {
	features         *mat.Dense
	labels           []int64
	train, val, test []uint8
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
func load(p *session.Partition) (own nodes, err error) {
	x, shape, err := session.NodeFeature[uint8](p, "_N/features")
	if err != nil {
		return own, err
	}
	if own.labels, _, err = session.NodeFeature[int64](p, "_N/labels"); err != nil {
		return own, err
	}
	for name, mask := range map[string]*[]uint8{"train": &own.train, "val": &own.val, "test": &own.test} {
		if *mask, _, err = session.NodeFeature[uint8](p, "_N/"+name+"_mask"); err != nil {
			return own, err
		}
	}
	width := int(shape[1])
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
	if err := session.AllReduce(s, session.Reduce, totals[:1], session.Sum); err != nil {
		return err
	}
	if err := session.AllReduce(s, session.Reduce, totals[1:], session.Max); err != nil {
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
	for m, mask := range [][]uint8{own.train, own.val, own.test} {
		for i := range mask {
			if mask[i] != 0 && floats.MaxIdx(logits.RawRowView(i)) == int(own.labels[i]) {
				sums[2*m]++
			}
		}
		sums[2*m+1] = count(mask)
	}
	if err := session.AllReduce(s, session.Reduce, sums, session.Sum); err != nil {
		return err
	}
	if s.Rank() == 0 {
		fmt.Printf("epoch %d  loss %.4f  accuracy: train %.1f %%, val %.1f %%, test %.1f %%\n", epoch, loss,
			100*sums[0]/sums[1], 100*sums[2]/sums[3], 100*sums[4]/sums[5])
	}
	return nil
}

func count(mask []uint8) (n float64) {
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
	if err := session.AllReduce(s, session.Reduce, flat, session.Sum); err != nil {
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
