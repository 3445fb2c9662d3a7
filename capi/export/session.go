package export

/*
#include "abi.h"
*/
import "C"

import (
	"math"
	"os"
	"syscall"
	"time"
	"unsafe"

	"sar/core/session"
)

//export sar_session_open
func sar_session_open(config *C.sar_const_session_config, out *C.sar_handle) C.sar_status {
	return guard("sar_session_open", func(*call) error {
		var c C.sar_session_config
		if err := copyIn("config", unsafe.Pointer(&c), unsafe.Pointer(config), C.sizeof_sar_session_config); err != nil {
			return err
		}
		if err := give("session", out, 0); err != nil {
			return err
		}
		if err := checkSIMD(); err != nil {
			return err
		}
		cfg := session.Config{
			Rank: int(c.rank), World: int(c.world), MasterPort: int(c.master_port), Window: int64(c.window_bytes),
			MasterAddr: text(c.master_addr), Interface: text(c.interface_name), Transport: text(c.transport), Advertise: text(c.advertise),
			JobToken: text(c.job_token), Insecure: c.insecure != 0, TLS: c.tls != 0,
			FirstPort: int(c.first_port), LastPort: int(c.last_port),
			// a goroutine that is called from C is bound to its thread
			Caller: func() uint64 { return uint64(syscall.Gettid()) },
		}
		if cfg.Window < 0 {
			return invalid("window_bytes is %d: it must be positive, or 0 for one that follows the job", cfg.Window)
		}
		for _, d := range []struct {
			name    string
			seconds float64
			to      *time.Duration
		}{
			{"start_seconds", float64(c.start_seconds), &cfg.Start},
			{"liveness_seconds", float64(c.liveness_seconds), &cfg.Liveness},
			{"operation_seconds", float64(c.operation_seconds), &cfg.Operation},
		} {
			if !(d.seconds >= 0 && d.seconds < math.MaxInt64/float64(time.Second)) { // also NaN
				return invalid("%s is %g: it must be positive, or 0 for the default", d.name, d.seconds)
			}
			*d.to = time.Duration(d.seconds * float64(time.Second))
		}
		s, err := session.Open(cfg)
		if err != nil {
			return err
		}
		*out = register(kindSession, s, nil)
		return nil
	})
}

//export sar_job_token
func sar_job_token(publicID *C.sar_const_char, token **C.char) C.sar_status {
	return guard("sar_job_token", func(*call) error {
		made, err := session.DerivedToken(text(publicID))
		if err != nil {
			return err
		}
		return give("token", token, C.CString(made))
	})
}

// checkSIMD reports a value of SAR_SIMD that kernels ignored when they were loaded.
func checkSIMD() error {
	want := os.Getenv("SAR_SIMD")
	if want == "" || want == session.SIMD() {
		return nil
	}
	_, err := session.ChooseSIMD(want)
	if err != nil {
		return invalid("SAR_SIMD: %v", err)
	}
	return nil
}

func useSession(c *call, h C.sar_handle) (*session.Session, error) {
	return use[*session.Session](c, h, kindSession)
}

// sar_session_close does not wait for calls that work on the session: closing
// makes them fail.
//
//export sar_session_close
func sar_session_close(h C.sar_handle) C.sar_status {
	return guard("sar_session_close", func(*call) error {
		e, err := remove(h, kindSession)
		if err != nil {
			return err
		}
		return e.value.(*session.Session).Close()
	})
}

//export sar_session_abort
func sar_session_abort(h C.sar_handle, message *C.sar_const_char) C.sar_status {
	return guard("sar_session_abort", func(c *call) error {
		s, err := useSession(c, h)
		if err != nil {
			return err
		}
		s.Abort(text(message))
		return nil
	})
}

//export sar_session_set_place
func sar_session_set_place(h C.sar_handle, layer C.uint32_t, of C.uint64_t, name *C.sar_const_char, number *C.uint64_t) C.sar_status {
	return guard("sar_session_set_place", func(c *call) error {
		s, err := useSession(c, h)
		if err != nil {
			return err
		}
		if err := give("number", number, 0); err != nil {
			return err
		}
		next, err := s.SetPlace(session.Place{Layer: uint32(layer), Of: uint64(of), Name: text(name)})
		*number = C.uint64_t(next)
		return err
	})
}

//export sar_session_name_layer
func sar_session_name_layer(h C.sar_handle, layer C.uint32_t, name *C.sar_const_char) C.sar_status {
	return guard("sar_session_name_layer", func(c *call) error {
		s, err := useSession(c, h)
		if err != nil {
			return err
		}
		return s.NameLayer(uint32(layer), text(name))
	})
}

//export sar_session_set_window
func sar_session_set_window(h C.sar_handle, bytes C.int64_t) C.sar_status {
	return guard("sar_session_set_window", func(c *call) error {
		s, err := useSession(c, h)
		if err != nil {
			return err
		}
		return s.SetWindow(int64(bytes))
	})
}

//export sar_session_set_exchange
func sar_session_set_exchange(h C.sar_handle, exchange C.int32_t) C.sar_status {
	return guard("sar_session_set_exchange", func(c *call) error {
		s, err := useSession(c, h)
		if err != nil {
			return err
		}
		return s.SetExchange(session.Exchange(exchange))
	})
}

//export sar_default_window
func sar_default_window(world C.int32_t, nodes C.int64_t) C.int64_t {
	return C.int64_t(session.DefaultWindow(int(world), int64(nodes)))
}

//export sar_session_memory
func sar_session_memory(h C.sar_handle, wait_seconds C.double, json **C.char) C.sar_status {
	return guard("sar_session_memory", func(c *call) error {
		s, err := useSession(c, h)
		if err != nil {
			return err
		}
		found, err := s.Memory(time.Duration(float64(wait_seconds) * float64(time.Second)))
		if err != nil {
			return err
		}
		return giveJSON(json, found)
	})
}

//export sar_session_stats
func sar_session_stats(h C.sar_handle, json **C.char) C.sar_status {
	return guard("sar_session_stats", func(c *call) error {
		s, err := useSession(c, h)
		if err != nil {
			return err
		}
		return giveJSON(json, s.Stats())
	})
}
