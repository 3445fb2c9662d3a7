// Package pybind is the face of the engine that Python sees through gopy:
// objects, numbers, strings and errors. Tensors go through the C ABI, which the
// blank import links into the same extension, and so into the same Go runtime.
//
// gopy does not survive a panic: what can fail returns an error.
package pybind

import (
	"encoding/json"
	"runtime"
	"runtime/debug"

	"sar/capi/export"
	"sar/core/session"
)

// Version is the version of the engine.
func Version() string { return export.Version }

// SIMD is what kernels use: "scalar", "avx2" or "avx512".
func SIMD() string { return export.SIMD() }

// MemoryStats is JSON: {"purpose": {"live": bytes, "peak": bytes}, .., "total": ..}.
func MemoryStats() (string, error) { return text(session.MemoryStats()) }

// Doctor is JSON that describes the engine and its process: version, go, simd,
// threads, cpus, heap_bytes, transports, modules {path: version}.
func Doctor() (string, error) {
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	modules := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			modules[m.Path] = m.Version
		}
	}
	return text(map[string]any{
		"version":    export.Version,
		"go":         runtime.Version(),
		"simd":       export.SIMD(),
		"threads":    export.Threads(),
		"cpus":       runtime.NumCPU(),
		"heap_bytes": heap.HeapSys,
		"transports": session.Transports(),
		"modules":    modules,
	})
}

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
