package export

/*
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"runtime/debug"

	"sar/core/session"
)

// call is one export in progress: the objects that it uses.
type call struct {
	used []*entry
	room [3]*entry // for used
}

// guard runs the body of an export. What need finds becomes the thread's last error
// and a status. So does any other panic, and it poisons the sessions of all objects
// that the body used: nobody knows what state it left them in.
func guard(name string, body func(c *call)) (status C.sar_status) {
	c := &call{}
	c.used = c.room[:0]
	defer func() {
		v := recover()
		c.release()
		switch v := v.(type) {
		case nil:
		case refusal:
			status = setError(v.error)
		default:
			err := &panicError{name, v, debug.Stack()}
			c.poison(err)
			status = setError(err)
		}
	}()
	body(c)
	return C.SAR_OK
}

// refusal is the panic with which an error ends an export (need, must and all that
// call them). The engine never calls such a function back.
type refusal struct{ error }

// need ends the export where there is an error.
func need(err error) {
	if err != nil {
		panic(refusal{err})
	}
}

// must is need for functions that return a value too.
func must[T any](v T, err error) T {
	need(err)
	return v
}

// refuse ends the export since an argument has a wrong value.
func refuse(format string, args ...any) { need(session.Invalid(format, args...)) }

// demand refuses where what is demanded of an argument is not so. What every call passes refuses by itself, because
// the arguments of a message that nobody reads take memory too.
func demand(ok bool, format string, args ...any) {
	if !ok {
		refuse(format, args...)
	}
}

// refuseType ends the export since a tensor has a wrong dtype or device.
func refuseType(format string, args ...any) { need(session.WrongType(format, args...)) }

func (c *call) release() {
	for _, e := range c.used {
		e.busy.RUnlock()
	}
}

// poison marks the sessions of the objects in use and tells their peers.
func (c *call) poison(err error) {
	for _, e := range c.used {
		o := e.owner
		if o == nil {
			continue
		}
		o.mu.Lock()
		first := o.poisoned == nil
		if first {
			o.poisoned = err
		}
		o.mu.Unlock()
		if s, ok := o.value.(interface{ Abort(message string) }); ok && first {
			s.Abort(err.Error())
		}
	}
}

// panicError is a bug of the engine that guard caught.
type panicError struct {
	where string
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("%s: bug in the engine: %v\n%s", e.where, e.value, e.stack)
}
