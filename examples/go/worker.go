package main

import (
	"context"
	"errors"
	"fmt"
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
func work(ctx context.Context, o options) (err error) {
	rank, err1 := strconv.Atoi(os.Getenv("RANK"))
	world, err2 := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	port, err3 := strconv.Atoi(os.Getenv("MASTER_PORT"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("RANK, WORLD_SIZE and MASTER_PORT must be numbers: %w", err)
	}
	s, err := session.Open(ctx, session.Config{
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
	graph, err := s.Build(ctx, part, 0)
	if err != nil {
		return err
	}
	defer graph.Free()
	own, err := load(part)
	if err != nil {
		return err
	}
	return fit(ctx, o, s, graph, own)
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

// training is a network of two layers and what it learns from.
type training struct {
	options
	session       *session.Session
	own           nodes
	first, second *layer
}

// fit trains the network and prints its accuracy.
func fit(ctx context.Context, o options, s *session.Session, g *session.Graph, own nodes) (err error) {
	totals := []float64{count(own.train), float64(slices.Max(append(own.labels, -1)))}
	if err := session.AllReduce(ctx, s, session.Reduce, totals[:1], session.Sum); err != nil {
		return err
	}
	if err := session.AllReduce(ctx, s, session.Reduce, totals[1:], session.Max); err != nil {
		return err
	}
	nTrain, classes := totals[0], int(totals[1])+1

	// The same weights on every worker, and a stream of dropout of its own on each.
	weights := rand.New(rand.NewPCG(o.seed, 0))
	drops := rand.New(rand.NewPCG(o.seed, uint64(1+s.Rank())))
	t := training{options: o, session: s, own: own}
	_, width := own.features.Dims()
	if t.first, err = newModelLayer(o, g, [3]int{width, o.heads, o.hidden / o.heads}, weights); err != nil {
		return err
	}
	if t.second, err = newModelLayer(o, g, [3]int{o.hidden, 1, classes}, weights); err != nil {
		return err
	}
	adam := newAdam(o, t.first, t.second)
	for epoch := 1; epoch <= o.epochs; epoch++ {
		loss, err := t.step(ctx, nTrain, drops)
		if err != nil {
			return err
		}
		if err := adam.step(ctx, s, &loss); err != nil {
			return err
		}
		if epoch%50 == 0 || epoch == o.epochs {
			if err := t.report(ctx, epoch, loss); err != nil {
				return err
			}
		}
	}
	return nil
}

// newModelLayer makes a layer of the model that is asked for: of so many columns, heads, and
// columns a head.
func newModelLayer(o options, g *session.Graph, size [3]int, rng *rand.Rand) (*layer, error) {
	if o.model == "gat" {
		return newGAT(g, size[0], size[1], size[2], rng)
	}
	return newGCN(g, size[0], size[1]*size[2], rng)
}

// step sets the gradients of the parameters, for this worker's part of the loss. Collective.
func (t *training) step(ctx context.Context, nTrain float64, drops *rand.Rand) (loss float64, err error) {
	h, err := t.first.forward(ctx, dropout(t.own.features, t.dropout, drops))
	if err != nil {
		return 0, err
	}
	dropped := dropout(elu(h), t.dropout, drops)
	logits, err := t.second.forward(ctx, dropped)
	if err != nil {
		return 0, err
	}
	loss, grad := crossEntropy(logits, t.own.labels, t.own.train, nTrain)
	if grad, err = t.second.backward(ctx, grad); err != nil {
		return 0, err
	}
	var gradH mat.Dense
	gradH.Mul(grad, t.second.params[0].T())
	throughELU(&gradH, dropped, t.dropout)
	_, err = t.first.backward(ctx, &gradH)
	return loss, err
}

// report prints loss and accuracies over all workers. Collective.
func (t *training) report(ctx context.Context, epoch int, loss float64) error {
	h, err := t.first.forward(ctx, t.own.features)
	if err != nil {
		return err
	}
	logits, err := t.second.forward(ctx, elu(h))
	if err != nil {
		return err
	}
	sums := make([]float64, 6) // right and all, of each mask
	for m, mask := range [][]uint8{t.own.train, t.own.val, t.own.test} {
		for i := range mask {
			if mask[i] != 0 && floats.MaxIdx(logits.RawRowView(i)) == int(t.own.labels[i]) {
				sums[2*m]++
			}
		}
		sums[2*m+1] = count(mask)
	}
	if err := session.AllReduce(ctx, t.session, session.Reduce, sums, session.Sum); err != nil {
		return err
	}
	if t.session.Rank() == 0 {
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
