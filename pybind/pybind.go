// Package pybind is the face of the engine that Python sees through gopy:
// objects, numbers, strings and errors. Tensors go through the C ABI, which the
// blank import links into the same extension, and so into the same Go runtime.
//
// gopy does not survive a panic: what can fail returns an error.
package pybind

import (
	"encoding/json"

	_ "sar/capi/export"
	"sar/core/session"
)

// Threads is the number of kernel threads.
func Threads() int { return session.Threads() }

// Transports is JSON: the names of SAR's own transports.
func Transports() (string, error) { return text(session.Transports()) }

// TraceStart begins to record what the engine does, at most capacity events.
func TraceStart(capacity int) error { return session.TraceStart(capacity) }

// TraceStop ends the recording. JSON: {"events": [Trace Event Format], "lanes": {tid: name}, "dropped": n}.
func TraceStop() (string, error) {
	t, err := session.TraceStop()
	if err != nil {
		return "", err
	}
	return text(t)
}

// ProfileStart writes the CPU time of the engine's goroutines to a file in pprof's format, until ProfileStop.
func ProfileStart(path string) error { return session.ProfileStart(path) }

// ProfileStop ends the profile.
func ProfileStop() error { return session.ProfileStop() }

func text(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
