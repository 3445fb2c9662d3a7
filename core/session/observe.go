package session

import (
	"fmt"
	"os"
	"runtime/pprof"

	"sar/core/trace"
)

// TraceEvent is an event in the format that chrome://tracing and Perfetto read
// (Trace Event Format, complete events "X"): times in microseconds since 1970.
type TraceEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Start float64        `json:"ts"`
	Took  float64        `json:"dur"`
	Pid   int            `json:"pid"`
	Tid   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// Trace is a recording: its events, the names of the lanes they are in, and how
// many events it had no room for.
type Trace struct {
	Events  []TraceEvent   `json:"events"`
	Lanes   map[int]string `json:"lanes"`
	Dropped int64          `json:"dropped"`
}

// TraceStart begins to record what the engine does, in this process.
func TraceStart(capacity int) error { return trace.Start(capacity) }

// TraceStop ends the recording. pid is set by whoever merges several workers.
func TraceStop() (Trace, error) {
	events, dropped, err := trace.Stop()
	if err != nil {
		return Trace{}, err
	}
	t := Trace{Events: make([]TraceEvent, 0, len(events)), Lanes: map[int]string{}, Dropped: dropped}
	numbers := map[string]int{}
	for _, e := range events {
		name := e.Group + ": " + e.Lane.String()
		switch e.Lane { // links work beside each other
		case trace.Sending:
			name += fmt.Sprintf(" to %d", e.Peer)
		case trace.Receiving:
			name += fmt.Sprintf(" from %d", e.Peer)
		}
		lane, ok := numbers[name]
		if !ok {
			lane = len(numbers) + 1
			numbers[name], t.Lanes[lane] = lane, name
		}
		args := map[string]any{}
		if e.Peer >= 0 {
			args["peer"] = e.Peer
			args["round"] = e.Round
		}
		if e.Bytes > 0 {
			args["bytes"] = e.Bytes
		}
		t.Events = append(t.Events, TraceEvent{
			Name: e.Name, Phase: "X", Tid: lane, Args: args,
			Start: float64(e.Start.UnixNano()) / 1e3, Took: float64(e.Took.Nanoseconds()) / 1e3,
		})
	}
	return t, nil
}

// ProfileStart writes where the engine's goroutines spend CPU time to a file,
// in pprof's format, until ProfileStop. 100 samples a second of CPU time.
func ProfileStart(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		file.Close()
		return err
	}
	profile = file
	return nil
}

// ProfileStop ends the profile and closes its file.
func ProfileStop() error {
	if profile == nil {
		return Invalid("no profile is being taken: start one first")
	}
	pprof.StopCPUProfile()
	file := profile
	profile = nil
	return file.Close()
}

var profile *os.File
