// Package argument has the error of a wrong argument, which concerns the caller
// alone: nothing was begun, and no other rank waits.
package argument

import "fmt"

// Error says that an argument has a wrong value; with Type set, a wrong dtype
// or device.
type Error struct {
	Type bool
	err  error
}

func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns what the text was made with.
func (e *Error) Unwrap() error { return e.err }

// Errorf makes the error of a wrong value, as fmt.Errorf does.
func Errorf(format string, args ...any) error {
	return &Error{err: fmt.Errorf(format, args...)}
}

// TypeErrorf makes the error of a wrong dtype.
func TypeErrorf(format string, args ...any) error {
	return &Error{Type: true, err: fmt.Errorf(format, args...)}
}
