package session

import (
	"errors"

	"sar/core/internal/argument"
)

// ArgumentError says that an argument has a wrong value; with Type set, a wrong
// dtype or device.
type ArgumentError = argument.Error

// Invalid makes the error of a wrong value.
func Invalid(format string, args ...any) error { return argument.Errorf(format, args...) }

// WrongType makes the error of a wrong dtype.
func WrongType(format string, args ...any) error { return argument.TypeErrorf(format, args...) }

// ErrClosed is returned by everything after Close.
var ErrClosed = errors.New("the session is shut down")
