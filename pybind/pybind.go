// Package pybind is the face that Python sees through gopy.
package pybind

import (
	_ "sar/capi/export"
)

// Version is the version of the engine.
func Version() string { return "0.1.0" }

// Doctor x
func Doctor() (string, error) { return "{}", nil }
