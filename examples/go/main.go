// Command go trains a graph neural network on Cora with two workers, in Go alone:
// graph convolutions, or attention. gonum does the dense half (linear layers,
// gradients); the engine partitions the graph, passes messages over it, with
// their gradients, and adds up the gradients of parameters.
//
//	go run ./examples/go
//	go run ./examples/go -model gat
//
// Without RANK in its environment the program partitions the graph and starts
// itself once for each worker. A launcher of your own may set RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT instead.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"

	"sar/core/session"
)

type options struct {
	graph, parts   string
	model          string
	workers        int
	epochs, hidden int
	heads          int
	rate, decay    float64
	dropout        float64
	seed           uint64
}

func main() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.graph, "graph", "examples/data/cora.npz", "graph to train on")
	flag.StringVar(&o.parts, "parts", "", "folder for the partitions (a temporary one)")
	flag.StringVar(&o.model, "model", "gcn", "gcn or gat")
	flag.IntVar(&o.workers, "workers", 2, "number of processes")
	flag.IntVar(&o.epochs, "epochs", 200, "training epochs")
	flag.IntVar(&o.hidden, "hidden", 64, "width of the hidden layer, of all heads")
	flag.IntVar(&o.heads, "heads", 8, "heads of the hidden layer of gat")
	flag.Float64Var(&o.rate, "lr", 0.01, "learning rate")
	flag.Float64Var(&o.decay, "weight-decay", 5e-4, "weight decay")
	flag.Float64Var(&o.dropout, "dropout", 0.5, "probability of a dropped entry")
	flag.Uint64Var(&o.seed, "seed", 0, "seed of the initial weights and of dropout")
	flag.Parse()

	// An interrupt ends the session on all workers.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := launch
	if os.Getenv("RANK") != "" {
		run = work
	}
	if err := run(ctx, o); err != nil {
		log.Fatalf("examples/go: %v", err)
	}
}

// launch partitions the graph and runs one process for each worker.
func launch(ctx context.Context, o options) error {
	if o.parts == "" {
		folder, err := os.MkdirTemp("", "sar-go-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		o.parts = folder
	}
	if err := partition(o); err != nil {
		return fmt.Errorf("partitioning %s: %w", o.graph, err)
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The first worker that fails ends the others.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failures := make(chan error, o.workers)
	for rank := range o.workers {
		c := exec.CommandContext(ctx, self, append(os.Args[1:], "-parts", o.parts)...)
		c.Env = append(os.Environ(), "RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(o.workers),
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(port))
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		go func() {
			err := c.Run()
			if err != nil {
				cancel()
				err = fmt.Errorf("worker %d: %w", rank, err)
			}
			failures <- err
		}()
	}
	var first error
	for range o.workers {
		if err := <-failures; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// partition cuts the graph into one part for each worker.
func partition(o options) error {
	d, err := session.OpenDataset(o.graph)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.AddSelfLoops(); err != nil {
		return err
	}
	assignment := make([]int32, d.NumNodes())
	if err := d.Assign(session.Contiguous, o.workers, o.seed, assignment); err != nil {
		return err
	}
	report, err := d.Quality(assignment, o.workers)
	if err != nil {
		return err
	}
	fmt.Print(report)
	written := session.WriteOptions{Name: "graph", Method: string(session.Contiguous)}
	return d.WriteParts(assignment, o.workers, o.parts, written, nil)
}

func description(o options) string { return filepath.Join(o.parts, "graph.json") }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
