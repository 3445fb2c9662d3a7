package export

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"unsafe"

	"sar/core/session"
)

// details are the parts of an error that callers may act on (sar_error_info).
type details struct {
	status            C.sar_status
	rank              int
	message           string
	host, phase, file string
	offset, minimum   int64
	number            syscall.Errno
}

// rule maps one type of error to a status. Rules are tried in order: an error
// that wraps another is put before what it may wrap.
type rule func(err error, d *details) bool

func when[E error](status C.sar_status, fill func(e E, d *details)) rule {
	return func(err error, d *details) bool {
		var e E
		if !errors.As(err, &e) {
			return false
		}
		d.status = status
		fill(e, d)
		return true
	}
}

func whenIs(status C.sar_status, target error) rule {
	return func(err error, d *details) bool {
		if !errors.Is(err, target) {
			return false
		}
		d.status = status
		return true
	}
}

// rules is the whole table of errors that have a status of their own. What is
// in none of them is SAR_ERR_INTERNAL.
var rules = []rule{
	whenIs(C.SAR_ERR_STOPPED, session.ErrStopped),
	whenIs(C.SAR_ERR_SHUT_DOWN, session.ErrClosed),
	whenIs(C.SAR_ERR_SHUT_DOWN, session.ErrGroupClosed),
	when(C.SAR_ERR_CLOSED, func(*closedError, *details) {}),
	when(C.SAR_ERR_INTERNAL, func(*panicError, *details) {}),
	when(C.SAR_ERR_VALUE, func(e *session.ArgumentError, d *details) {
		if e.Type {
			d.status = C.SAR_ERR_TYPE
		}
	}),
	when(C.SAR_ERR_VALUE, func(e *session.SizeError, d *details) { d.rank = e.Peer }),
	when(C.SAR_ERR_REMOTE, func(e *session.RemoteError, d *details) { d.rank, d.host = e.Rank, e.Host }),
	when(C.SAR_ERR_PEER_LOST, func(e *session.PeerLost, d *details) { d.rank, d.host, d.phase = e.Rank, e.Host, e.Phase }),
	when(C.SAR_ERR_SCHEDULE, func(e *session.ScheduleError, d *details) { d.rank = e.Peer }),
	when(C.SAR_ERR_RENDEZVOUS, func(*session.RendezvousError, *details) {}),
	when(C.SAR_ERR_TIMEOUT, func(e *session.DeadlineError, d *details) { d.rank, d.phase = e.Peer, e.Phase }),
	when(C.SAR_ERR_FORMAT, func(e *session.FormatError, d *details) { d.file, d.offset = e.File, e.Offset }),
	when(C.SAR_ERR_BUDGET, func(e *session.BudgetError, d *details) { d.minimum = e.Minimum }),
	when(C.SAR_ERR_PEER_LOST, func(e *session.PeerGone, d *details) { d.rank = e.Peer }),
	when(C.SAR_ERR_TIMEOUT, func(e *session.TimeoutError, d *details) { d.rank = e.Peer }),
	when(C.SAR_ERR_IO, func(e *fs.PathError, d *details) { d.file = e.Path }),
	when(C.SAR_ERR_IO, func(syscall.Errno, *details) {}),
}

func classify(err error) details {
	d := details{status: C.SAR_ERR_INTERNAL, rank: -1, offset: -1, message: err.Error()}
	for _, r := range rules {
		if r(err, &d) {
			break
		}
	}
	if d.status == C.SAR_ERR_IO {
		errors.As(err, &d.number)
	}
	return d
}

// setError makes err the calling thread's last error and returns its status.
func setError(err error) C.sar_status {
	if err == nil {
		return C.SAR_OK
	}
	d := classify(err)
	var frees [4]*C.char
	for i, s := range [4]string{d.message, d.host, d.phase, d.file} {
		frees[i] = C.CString(s)
		defer C.free(unsafe.Pointer(frees[i]))
	}
	C.lasterror_set(&C.sar_error_info{
		size: C.sizeof_sar_error_info, status: d.status, rank: C.int32_t(d.rank),
		message: frees[0], host: frees[1], phase: frees[2], file: frees[3],
		offset: C.int64_t(d.offset), minimum: C.int64_t(d.minimum), error_number: C.int32_t(d.number),
	})
	return d.status
}

// closedError says that a handle was closed before.
type closedError struct{ kind kind }

func (e *closedError) Error() string { return fmt.Sprintf("the %s is closed", e.kind) }

//export sar_last_error
func sar_last_error() *C.sar_const_char { return C.lasterror_get().message }

//export sar_last_error_info
func sar_last_error_info(out *C.sar_error_info) {
	if out != nil {
		copyOut(unsafe.Pointer(out), unsafe.Pointer(C.lasterror_get()), C.sizeof_sar_error_info)
	}
}
