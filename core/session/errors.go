package session

import (
	"errors"
	"fmt"
)

// ArgumentError says that an argument has a wrong value; with Type set, a wrong
// dtype or device.
type ArgumentError struct {
	Type bool
	Text string
}

func (e *ArgumentError) Error() string { return e.Text }

// Invalid makes the error of a wrong value.
func Invalid(format string, args ...any) error {
	return &ArgumentError{Text: fmt.Sprintf(format, args...)}
}

// WrongType makes the error of a wrong dtype.
func WrongType(format string, args ...any) error {
	return &ArgumentError{Type: true, Text: fmt.Sprintf(format, args...)}
}

// ErrClosed is returned by everything after Close.
var ErrClosed = errors.New("the session is shut down: call sar.initialize_comms again")
