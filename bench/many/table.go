package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// summary is a row of the table: of each figure the largest of all workers, of processor
// time the sum.
type summary struct {
	World                int
	Start, Joining, Idle float64
	Descriptors, Ranks   int // of rank 0, and the most of the others
	Threads              int
	// Resident and private bytes once all have met, when the window is hardly touched; private ones
	// beside the window at the end.
	Beside, Private, Later int64
	Window                 int64
	Barrier, Small, Large  timing
	Rounds                 []round
}

func summarize(results []result, began time.Time) summary {
	s := summary{World: len(results), Rounds: make([]round, len(results[0].Rounds))}
	for _, r := range results {
		s.Start = max(s.Start, r.Ready.Sub(began).Seconds())
		s.Joining += r.Joining
		s.Idle += r.Idle
		if r.Rank == 0 {
			s.Descriptors = r.Descriptors
		} else {
			s.Ranks = max(s.Ranks, r.Descriptors)
		}
		s.Threads = max(s.Threads, r.Threads)
		s.Beside, s.Private = max(s.Beside, r.Resident), max(s.Private, r.Private)
		s.Later, s.Window = max(s.Later, r.Grew-r.Peak), max(s.Window, r.Window)
		s.Barrier.add(r.Barrier)
		s.Small.add(r.Small)
		s.Large.add(r.Large)
		for i, of := range r.Rounds {
			to := &s.Rounds[i]
			to.add(of.timing)
			to.Columns, to.Payload, to.Frames = of.Columns, max(to.Payload, of.Payload), max(to.Frames, of.Frames)
			to.Largest = max(to.Largest, of.Largest)
		}
	}
	return s
}

func (t *timing) add(other timing) {
	t.Seconds = max(t.Seconds, other.Seconds)
	t.Processor += other.Processor
}

// column is one figure of the table.
type column struct {
	name  string
	value func(s summary) float64
}

const mib = 1 << 20

func columnsOf(rows []summary) []column {
	peers := func(s summary) float64 { return float64(max(1, s.World-1)) }
	list := []column{
		{"start, s", func(s summary) float64 { return s.Start }},
		{"start, processor s", func(s summary) float64 { return s.Joining }},
		{"descriptors a peer, rank 0", func(s summary) float64 { return float64(s.Descriptors) / peers(s) }},
		{"descriptors a peer, others", func(s summary) float64 { return float64(s.Ranks) / peers(s) }},
		{"threads", func(s summary) float64 { return float64(s.Threads) }},
		{"window, MiB", func(s summary) float64 { return float64(s.Window) / mib }},
		{"resident without it, MiB", func(s summary) float64 { return float64(s.Beside) / mib }},
		{"private of that, MiB", func(s summary) float64 { return float64(s.Private) / mib }},
		{"private beside it after all, MiB", func(s summary) float64 { return float64(s.Later) / mib }},
		{"idle, processor ms a second", func(s summary) float64 { return 1e3 * s.Idle }},
		{"barrier, ms", func(s summary) float64 { return 1e3 * s.Barrier.Seconds }},
		{"barrier, processor ms", func(s summary) float64 { return 1e3 * s.Barrier.Processor }},
		{"all-reduce 1 KiB, ms", func(s summary) float64 { return 1e3 * s.Small.Seconds }},
		{"all-reduce 1 KiB, processor ms", func(s summary) float64 { return 1e3 * s.Small.Processor }},
		{"all-reduce 1 MiB, ms", func(s summary) float64 { return 1e3 * s.Large.Seconds }},
		{"all-reduce 1 MiB, processor ms", func(s summary) float64 { return 1e3 * s.Large.Processor }},
	}
	for i, r := range rows[0].Rounds {
		of := func(s summary) round { return s.Rounds[i] }
		name := func(what string) string { return fmt.Sprintf("%d columns, %s", r.Columns, what) }
		list = append(list,
			column{name("ms"), func(s summary) float64 { return 1e3 * of(s).Seconds }},
			column{name("processor ms"), func(s summary) float64 { return 1e3 * of(s).Processor }},
			column{name("MiB a worker"), func(s summary) float64 { return float64(of(s).Payload) / mib }},
			column{name("frames a worker"), func(s summary) float64 { return float64(of(s).Frames) }},
			column{name("KiB a frame"), func(s summary) float64 { return of(s).Largest / 1024 }})
	}
	return list
}

// report prints a line for each figure, a column for each number of workers, and how much
// a worker more costs between the last two.
func report(w io.Writer, rows []summary) {
	head := []string{"workers"}
	for _, s := range rows {
		head = append(head, fmt.Sprint(s.World))
	}
	slope := len(rows) > 1
	if slope {
		head = append(head, "one more, at the end")
	}
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat(" --- |", len(head)))
	for _, c := range columnsOf(rows) {
		line := []string{c.name}
		for _, s := range rows {
			line = append(line, fmt.Sprintf("%.4g", c.value(s)))
		}
		if slope {
			a, b := rows[len(rows)-2], rows[len(rows)-1]
			line = append(line, fmt.Sprintf("%.3g", (c.value(b)-c.value(a))/float64(b.World-a.World)))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
	}
}
