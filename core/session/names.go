package session

import (
	"errors"

	"sar/core/comm"
	"sar/core/internal/argument"
	"sar/core/internal/dtypes"
	"sar/core/mem"
	"sar/core/store/disk"
	"sar/core/transport"
	"sar/core/transport/node"
)

// What the layers below say to the users of this package, who do not import
// them: their errors and the types of an all-reduce.
type (
	PeerLost        = comm.PeerLost
	RemoteError     = comm.RemoteError
	ScheduleError   = comm.ScheduleError
	SizeError       = comm.SizeError
	RendezvousError = comm.RendezvousError
	DeadlineError   = comm.DeadlineError
	FormatError     = disk.FormatError
	BudgetError     = mem.BudgetError
	PeerGone        = transport.PeerGone
	TimeoutError    = transport.TimeoutError

	Communicator = comm.Communicator
	DType        = dtypes.Type
	ReduceOp     = comm.ReduceOp
	Place        = comm.Place
	ValueRequest = comm.ValueRequest
	ValueReply   = comm.ValueReply
)

// Transports are the names of all there are.
func Transports() []string { return node.Names() }

// ErrGroupClosed is ErrClosed of the layer below.
var ErrGroupClosed = comm.ErrClosed

// DTypeOf finds the type of the numbers of a tensor by DLPack's code and bits, DTypeFor by Go's type.
func DTypeOf(code, bits uint8) (DType, bool) { return dtypes.Of(code, bits) }
func DTypeFor[T Number]() DType              { return dtypes.For[T]() }

// BFloat16 is the type of numbers that Rows.Half has.
const BFloat16 = dtypes.BFloat16

// ParseReduceOp returns a reduction by its number.
func ParseReduceOp(op int) (ReduceOp, error) {
	if op < 0 || op > int(comm.Avg) {
		return 0, Invalid("there is no reduction %d: 0 is sum, 1 min, 2 max, 3 prod, 4 avg", op)
	}
	return ReduceOp(op), nil
}

// ArgumentError says that an argument has a wrong value; with Type set, a wrong
// dtype or device.
type ArgumentError = argument.Error

// Invalid makes the error of a wrong value.
func Invalid(format string, args ...any) error { return argument.Errorf(format, args...) }

// WrongType makes the error of a wrong dtype.
func WrongType(format string, args ...any) error { return argument.TypeErrorf(format, args...) }

// ErrClosed is returned by everything after Close.
var ErrClosed = errors.New("the session is shut down")
