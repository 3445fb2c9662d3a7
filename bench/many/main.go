// Many runs many workers of the engine on this machine, without Python, and prints what
// they take against their number: the time to meet, a barrier, all-reduces, rounds of rows
// over a random graph, and of each process descriptors, threads and memory.
//
//	make bench-many MANY="--workers 16,32,64,128"
//
// Times are medians of the slowest worker. Descriptors, threads, bytes and frames do not
// depend on what else the machine does; processor time hardly.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// job is what all workers are told.
type job struct {
	Rank, World int
	Master      string
	Port        int
	Transport   string
	Window      int64
	Nodes       int // of a worker
	Degree      int
	Columns     []int
	Repeat      int
	Threads     int
}

func main() {
	if text := os.Getenv(jobVariable); text != "" {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	j := job{}
	workers := flag.String("workers", "8,16,32,64,128", "numbers of workers")
	columns := flag.String("columns", "1,256", "widths of rows")
	inside := flag.String("inside", "",
		"words that run a worker elsewhere, with %d for its rank: \"ip netns exec host-%d\"")
	flag.StringVar(&j.Master, "master", "127.0.0.1", "address at which workers meet")
	flag.StringVar(&j.Transport, "transport", "tcp", "transport")
	flag.Int64Var(&j.Window, "window", 0, "bytes of the window, 0: as the engine chooses")
	flag.IntVar(&j.Nodes, "nodes", 512, "nodes of a worker")
	flag.IntVar(&j.Degree, "degree", 16, "edges into a node, from random nodes of all workers")
	flag.IntVar(&j.Repeat, "repeat", 5, "times that each is done")
	flag.IntVar(&j.Threads, "threads", 1, "kernel threads of a worker")
	limit := flag.Duration("limit", 4*time.Minute, "for one number of workers")
	flag.Parse()
	if err := bench(j, *workers, *columns, *inside, *limit); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// numbers reads "1,256".
func numbers(text string) (list []int, err error) {
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no list of positive numbers", text)
		}
		list = append(list, n)
	}
	return list, nil
}

func bench(j job, workers, columns, inside string, limit time.Duration) error {
	worlds, err := numbers(workers)
	if err != nil {
		return err
	}
	if j.Columns, err = numbers(columns); err != nil {
		return err
	}
	var rows []summary
	for _, j.World = range worlds {
		results, began, err := launch(j, inside, limit)
		if err != nil {
			return fmt.Errorf("%d workers: %w", j.World, err)
		}
		rows = append(rows, summarize(results, began))
		fmt.Fprintf(os.Stderr, "%d workers: done in %.1f s\n", j.World, time.Since(began).Seconds())
	}
	report(os.Stdout, rows)
	return nil
}

// launch runs one job and returns what its workers found, and when it began.
func launch(j job, inside string, limit time.Duration) (results []result, began time.Time, err error) {
	if j.Port, err = freePort(j.Master); err != nil {
		return nil, began, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, began, err
	}
	began = time.Now()
	commands := make([]*exec.Cmd, j.World)
	outputs := make([]bytes.Buffer, j.World)
	ended := make(chan error, j.World)
	stop := func() {
		for _, c := range commands {
			if c != nil && c.Process != nil {
				_ = c.Process.Kill()
			}
		}
	}
	late := time.AfterFunc(limit, stop)
	defer late.Stop()
	for rank := range commands {
		j.Rank = rank
		text, err := json.Marshal(j)
		if err != nil {
			return nil, began, err
		}
		var words []string
		if inside != "" {
			words = strings.Fields(fmt.Sprintf(inside, rank))
		}
		words = append(words, self)
		c := exec.Command(words[0], words[1:]...)
		c.Env = append(os.Environ(), jobVariable+"="+string(text))
		c.Stdout, c.Stderr = &outputs[rank], os.Stderr
		if err := c.Start(); err != nil {
			stop()
			return nil, began, err
		}
		commands[rank] = c
		go func() {
			err := c.Wait()
			if err != nil {
				stop() // the others have nothing to wait for
				err = fmt.Errorf("worker %d: %w", rank, err)
			}
			ended <- err
		}()
	}
	var first error
	for range commands {
		if err := <-ended; err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return nil, began, first
	}
	results = make([]result, j.World)
	for rank := range results {
		line, _ := bufio.NewReader(&outputs[rank]).ReadBytes('\n')
		if err := json.Unmarshal(line, &results[rank]); err != nil {
			return nil, began, fmt.Errorf("worker %d printed %q: %w", rank, line, err)
		}
	}
	return results, began, nil
}

// freePort finds one for the workers to meet at. An address of another network
// namespace cannot be tried.
func freePort(host string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 29400, nil
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
