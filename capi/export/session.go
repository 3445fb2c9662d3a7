package export

/*
#include "abi.h"
*/
import "C"

import (
	"context"
	"math"
	"os"
	"syscall"
	"time"

	"sar/core/session"
)

//export sar_session_open
func sar_session_open(config *C.sar_const_session_config, out *C.sar_handle) C.sar_status {
	return guard("sar_session_open", func(c *call) {
		from := copyIn("config", config)
		cfg := session.Config{
			Rank: int(from.rank), World: int(from.world), Window: int64(from.window_bytes),
			MasterAddr: text(from.master_addr), MasterPort: int(from.master_port),
			Interface: text(from.interface_name), Transport: text(from.transport), Advertise: text(from.advertise),
			JobToken: text(from.job_token), Insecure: from.insecure != 0, TLS: from.tls != 0,
			Ports:     session.Ports{First: int(from.first_port), Last: int(from.last_port)},
			Start:     duration("start_seconds", from.start_seconds),
			Liveness:  duration("liveness_seconds", from.liveness_seconds),
			Operation: duration("operation_seconds", from.operation_seconds),
			// a goroutine that is called from C is bound to its thread
			Caller: func() uint64 { return uint64(syscall.Gettid()) },
		}
		demand(cfg.Window >= 0, "window_bytes is %d: it must be positive, or 0 for one that follows the job", cfg.Window)
		// Kernels ignored a SAR_SIMD that they do not know when they were loaded.
		if want := os.Getenv("SAR_SIMD"); want != "" && want != session.SIMD() {
			if _, err := session.ChooseSIMD(want); err != nil {
				refuse("SAR_SIMD: %v", err)
			}
		}
		create(c, sessions, out, func() (*session.Session, error) { return session.Open(context.Background(), cfg) })
	})
}

func duration(name string, seconds C.double) time.Duration {
	s := float64(seconds)
	demand(s >= 0 && s < math.MaxInt64/float64(time.Second), // neither of NaN
		"%s is %g: it must be positive, or 0 for the default", name, s)
	return time.Duration(s * float64(time.Second))
}

//export sar_job_token
func sar_job_token(publicID *C.sar_const_char, token **C.char) C.sar_status {
	return guard("sar_job_token", func(*call) {
		give("token", token, nil)
		*token = C.CString(must(session.DerivedToken(text(publicID))))
	})
}

// sar_session_close does not wait for calls that work on the session: closing
// makes them fail.
//
//export sar_session_close
func sar_session_close(h C.sar_handle) C.sar_status {
	return guard("sar_session_close", func(*call) { need(must(remove(h, sessions)).value.(*session.Session).Close()) })
}

//export sar_session_abort
func sar_session_abort(h C.sar_handle, message *C.sar_const_char) C.sar_status {
	return guard("sar_session_abort", func(c *call) { use(c, h, sessions).Abort(text(message)) })
}

//export sar_session_value
func sar_session_value(h C.sar_handle, request *C.sar_const_char, json **C.char) C.sar_status {
	return guard("sar_session_value", func(c *call) {
		s := use(c, h, sessions)
		giveJSON(json, must(s.Value(readJSON[session.ValueRequest]("request", request))))
	})
}

//export sar_session_set_place
func sar_session_set_place(
	h C.sar_handle, layer C.uint32_t, of C.uint64_t, name *C.sar_const_char, number *C.uint64_t,
) C.sar_status {
	return guard("sar_session_set_place", func(c *call) {
		s := use(c, h, sessions)
		give("number", number, 0)
		*number = C.uint64_t(must(s.SetPlace(session.Place{Layer: uint32(layer), Of: uint64(of), Name: text(name)})))
	})
}

//export sar_session_name_layer
func sar_session_name_layer(h C.sar_handle, layer C.uint32_t, name *C.sar_const_char) C.sar_status {
	return guard("sar_session_name_layer", func(c *call) {
		need(use(c, h, sessions).NameLayer(uint32(layer), text(name)))
	})
}

//export sar_session_set_window
func sar_session_set_window(h C.sar_handle, bytes C.int64_t) C.sar_status {
	return guard("sar_session_set_window", func(c *call) { need(use(c, h, sessions).SetWindow(int64(bytes))) })
}

//export sar_session_set_exchange
func sar_session_set_exchange(h C.sar_handle, exchange C.int32_t) C.sar_status {
	return guard("sar_session_set_exchange", func(c *call) {
		need(use(c, h, sessions).SetExchange(session.Exchange(exchange)))
	})
}

//export sar_default_window
func sar_default_window(world C.int32_t, nodes C.int64_t) C.int64_t {
	return C.int64_t(session.DefaultWindow(int(world), int64(nodes)))
}

//export sar_session_memory
func sar_session_memory(h C.sar_handle, wait_seconds C.double, json **C.char) C.sar_status {
	return guard("sar_session_memory", func(c *call) {
		s := use(c, h, sessions)
		giveJSON(json, must(s.Memory(time.Duration(float64(wait_seconds)*float64(time.Second)))))
	})
}

//export sar_session_stats
func sar_session_stats(h C.sar_handle, json **C.char) C.sar_status {
	return guard("sar_session_stats", func(c *call) { giveJSON(json, use(c, h, sessions).Stats()) })
}
