package transport

import "errors"

// ErrClosed is returned by every call on a link that this side has closed.
var ErrClosed = errors.New("transport: link is closed")
