package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"sar/core/session"
)

var ctx = context.Background()

const jobVariable = "SAR_BENCH_MANY"

// result is what a worker finds. Seconds are medians, Processor is of one time.
type result struct {
	Rank    int
	Ready   time.Time
	Joining float64 // processor time until then
	// Of the process, once all have met and nothing has been done.
	Descriptors, Threads     int
	Resident, Private        int64   // bytes
	Idle                     float64 // processor seconds a second
	Barrier, Small, Large    timing
	Rounds                   []round
	Window, Peak, Most, Grew int64 // window, resident and private bytes at the end
}

// idleTime is how long a worker does nothing, to see what signs of life cost.
const idleTime = 2 * time.Second

type timing struct{ Seconds, Processor float64 }

type round struct {
	timing
	Columns         int
	Payload, Frames uint64  // sent
	Largest         float64 // mean payload of a frame, of the link where it is largest
}

func work(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	session.SetThreads(j.Threads)
	s, err := session.Open(ctx, session.Config{
		Rank: j.Rank, World: j.World, MasterAddr: j.Master, MasterPort: j.Port, JobToken: "a bench has no secrets",
		Transport: j.Transport, Window: j.Window, Operation: 3 * time.Minute,
	})
	if err != nil {
		return err
	}
	defer s.Close()
	out := result{Rank: j.Rank, Ready: time.Now(), Joining: processor()}
	if err := s.Barrier(ctx, session.Reduce); err != nil { // all have met
		return err
	}
	if err := out.measure(j, s); err != nil {
		return err
	}
	if err := s.Barrier(ctx, session.Reduce); err != nil { // nobody leaves before all are done
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func (out *result) measure(j job, s *session.Session) (err error) {
	out.Descriptors, out.Threads, out.Resident, out.Private = process()
	busy := processor()
	time.Sleep(idleTime)
	out.Idle = (processor() - busy) / idleTime.Seconds()
	if out.Barrier, err = timed(4*j.Repeat, func() error { return s.Barrier(ctx, session.Reduce) }); err != nil {
		return err
	}
	for _, n := range []struct {
		floats int
		to     *timing
	}{{256, &out.Small}, {1 << 18, &out.Large}} {
		x := make([]float32, n.floats)
		*n.to, err = timed(j.Repeat, func() error { return session.AllReduce(ctx, s, session.Reduce, x, session.Sum) })
		if err != nil {
			return err
		}
	}
	g, err := randomGraph(j, s)
	if err != nil {
		return err
	}
	defer g.Free()
	for _, columns := range j.Columns {
		r, err := exchange(j, s, g, columns)
		if err != nil {
			return err
		}
		out.Rounds = append(out.Rounds, r)
	}
	out.Window = s.Stats().Window.Limit
	_, _, out.Most, out.Grew = process()
	out.Peak = s.Stats().Window.Live
	return nil
}

// randomGraph has Degree edges into each node, from any node of any worker.
func randomGraph(j job, s *session.Session) (*session.Graph, error) {
	starts := make([]int64, j.World+1)
	for p := range starts {
		starts[p] = int64(p) * int64(j.Nodes)
	}
	random := rand.New(rand.NewPCG(1, uint64(j.Rank)))
	var src, dst []int64
	for i := range int64(j.Nodes) {
		for range j.Degree {
			src = append(src, random.Int64N(starts[j.World]))
			dst = append(dst, starts[j.Rank]+i)
		}
	}
	return s.GraphFromEdges(ctx, starts, src, dst)
}

// exchange sums rows of so many columns over the graph.
func exchange(j job, s *session.Session, g *session.Graph, columns int) (round, error) {
	x := session.Rows[float32]{Data: make([]float32, j.Nodes*columns), N: j.Nodes, Width: columns}
	y := session.Rows[float32]{Data: make([]float32, j.Nodes*columns), N: j.Nodes, Width: columns}
	for i := range x.Data {
		x.Data[i] = 1
	}
	var b session.Builder
	sum, err := b.U(columns).Sum()
	if err != nil {
		return round{}, err
	}
	call := session.ProgramCall[float32]{Operands: []session.Rows[float32]{x}, Out: y}
	before := s.Stats().Links
	times := 0
	t, err := timed(j.Repeat, func() error {
		times++
		if _, _, err := session.ProgramForward(g, sum, call, 0); err != nil {
			return err
		}
		if int(y.Data[0]) != j.Degree { // every row is ones
			return fmt.Errorf("the sum of %d ones is %g", j.Degree, y.Data[0])
		}
		return nil
	})
	r := round{timing: t, Columns: columns}
	for i, l := range s.Stats().Links {
		if l.Communicator != "train" {
			continue
		}
		payload, frames := l.SentPayload-before[i].SentPayload, l.SentFrames-before[i].SentFrames
		r.Payload, r.Frames = r.Payload+payload/uint64(times), r.Frames+frames/uint64(times)
		r.Largest = max(r.Largest, float64(payload)/float64(max(1, frames)))
	}
	return r, err
}

// timed runs f, once to begin with and then so often for the figures.
func timed(times int, f func() error) (timing, error) {
	if err := f(); err != nil {
		return timing{}, err
	}
	var all []float64
	busy := processor()
	for range times {
		t := time.Now()
		if err := f(); err != nil {
			return timing{}, err
		}
		all = append(all, time.Since(t).Seconds())
	}
	slices.Sort(all)
	return timing{all[len(all)/2], (processor() - busy) / float64(times)}, nil
}

// processor is the processor time of this process in seconds.
func processor() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// process counts this process's descriptors and threads and its resident memory, all of
// it and what it does not share with other processes of the same program.
func process() (descriptors, threads int, resident, private int64) {
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		descriptors = len(list) - 1 // that of the list itself
	}
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range bytes.Split(status, []byte("\n")) {
		words := bytes.Fields(line)
		if len(words) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(string(words[1]), 10, 64)
		switch string(words[0]) {
		case "Threads:":
			threads = int(n)
		case "VmRSS:":
			resident = n << 10
		case "RssAnon:":
			private = n << 10
		}
	}
	return descriptors, threads, resident, private
}
