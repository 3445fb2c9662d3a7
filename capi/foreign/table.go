// Package foreign makes a provider of core/transport/foreign of a table of C functions, as
// sar.h specifies it.
package foreign

/*
#include <stdlib.h>
#include <string.h>
#include "table.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"sar/core/transport/foreign"
)

// Register makes the library of a table known, a C.sar_transport that is copied. Errors are of the
// table, which the caller can mend.
func Register(table unsafe.Pointer) error {
	if table == nil {
		return errors.New("transport is NULL")
	}
	given := *(*C.size_t)(table)
	if given < C.size_t(unsafe.Offsetof(C.sar_transport{}.disconnect)+unsafe.Sizeof(uintptr(0))) {
		return fmt.Errorf("transport.size is %d: set it to sizeof the struct", given)
	}
	t := (*C.sar_transport)(C.calloc(1, C.sizeof_sar_transport)) // as long as the process lives
	C.memcpy(unsafe.Pointer(t), table, min(given, C.sizeof_sar_transport))
	err := check(t)
	if err == nil {
		t.name = C.strdup(t.name)
		err = foreign.Register(&provider{t, C.GoString(t.name)})
	}
	if err != nil {
		C.free(unsafe.Pointer(t))
	}
	return err
}

func check(t *C.sar_transport) error {
	switch {
	case t.name == nil:
		return errors.New("transport.name is NULL")
	case t.open == nil || t.close == nil || t.connect == nil || t.send == nil || t.receive == nil || t.disconnect == nil:
		return errors.New("transport: open, close, connect, send, receive and disconnect are needed")
	case (t.register_memory == nil) != (t.unregister_memory == nil):
		return errors.New("transport: register_memory and unregister_memory come together")
	case t.flags&^C.SAR_TRANSPORT_REVOKES != 0:
		return fmt.Errorf("transport.flags %#x: this version knows SAR_TRANSPORT_REVOKES alone", uint32(t.flags))
	case !(t.byte_cost >= 0 && t.byte_cost < 1e9):
		return fmt.Errorf("transport.byte_cost is %g: nanoseconds are needed, or 0", float64(t.byte_cost))
	}
	return nil
}

type provider struct {
	table *C.sar_transport
	name  string
}

func (p *provider) Name() string      { return p.name }
func (p *provider) ByteCost() float64 { return float64(p.table.byte_cost) }
func (p *provider) Revokes() bool     { return p.table.flags&C.SAR_TRANSPORT_REVOKES != 0 }

// Probe says in words what a library that is known would use here, or why it cannot be used.
func Probe(name string) (uses string, err error) {
	p := foreign.Find(name)
	if p == nil {
		return "", fmt.Errorf("no transport %q is registered", name)
	}
	return p.Probe()
}

// message is where a function writes its text.
type message [C.SAR_TRANSPORT_TEXT]C.char

func (m *message) String() string {
	b := C.GoBytes(unsafe.Pointer(m), C.SAR_TRANSPORT_TEXT)
	text, _, _ := strings.Cut(string(b), "\x00")
	return strings.ToValidUTF8(text, "?")
}

func (m *message) error(what string, status C.sar_status) error {
	if status == C.SAR_OK {
		return nil
	}
	text := m.String()
	if text == "" {
		text = fmt.Sprintf("status %d", int(status))
	}
	return fmt.Errorf("%s: %s", what, text)
}

func (p *provider) Automatic() bool {
	var chosen C.int32_t
	return C.table_probe(p.table, &chosen, nil) == C.SAR_OK && chosen == 1
}

func (p *provider) Probe() (uses string, err error) {
	var m message
	var chosen C.int32_t
	err = m.error("it cannot be used here", C.table_probe(p.table, &chosen, &m[0]))
	return m.String(), err
}

func (p *provider) Open(rank, world int) (foreign.Worker, error) {
	var m message
	var address [C.SAR_TRANSPORT_ADDRESS]C.uint8_t
	n := C.size_t(len(address))
	w := &worker{table: p.table}
	err := m.error("opening it", C.table_open(p.table, C.int32_t(rank), C.int32_t(world), &w.worker, &address[0], &n,
		&m[0]))
	if err != nil {
		return nil, err
	}
	if n > C.size_t(len(address)) {
		w.Close()
		return nil, fmt.Errorf("its address has %d bytes, at most %d are allowed", n, len(address))
	}
	w.address = C.GoBytes(unsafe.Pointer(&address[0]), C.int(n))
	return w, nil
}

type worker struct {
	table   *C.sar_transport
	worker  C.uintptr_t
	address []byte
}

func (w *worker) Address() []byte { return w.address }
func (w *worker) Close()          { C.table_close(w.table, w.worker) }

func (w *worker) Register(b []byte) (foreign.Memory, error) {
	var m message
	var memory C.uintptr_t
	err := m.error(fmt.Sprintf("registering %d bytes of memory", len(b)),
		C.table_register(w.table, w.worker, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), &memory, &m[0]))
	return memory, err
}

func (w *worker) Unregister(m foreign.Memory) {
	C.table_unregister(w.table, w.worker, handleOf(m))
}

// handleOf is what the library knows memory by.
func handleOf(m foreign.Memory) C.uintptr_t {
	number, _ := m.(C.uintptr_t)
	return number
}

func (w *worker) Connect(p foreign.Peer) (foreign.Channel, error) {
	var m message
	c := &channel{table: w.table}
	address := (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(p.Address)))
	err := m.error("connecting", C.table_connect(w.table, w.worker, C.int32_t(p.Rank), address, C.size_t(len(p.Address)),
		C.uint32_t(p.SendTag), C.uint32_t(p.ReceiveTag), &c.link, &m[0]))
	if err != nil {
		return nil, err
	}
	return c, nil
}

type channel struct {
	table *C.sar_transport
	link  C.uintptr_t
}

func (c *channel) Send(b []byte, m foreign.Memory, r *foreign.Request) {
	C.table_send(c.table, c.link, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), handleOf(m), numberOf(r))
}

func (c *channel) Receive(b []byte, m foreign.Memory, r *foreign.Request) {
	C.table_receive(c.table, c.link, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), handleOf(m), numberOf(r))
}

func (c *channel) Disconnect() { C.table_disconnect(c.table, c.link) }

// requests are those that libraries know by number. A number is never used twice, so that one
// that is completed twice, or was never given, does nothing.
var requests = struct {
	sync.Mutex
	last uint64
	open map[uint64]*foreign.Request
}{open: map[uint64]*foreign.Request{}}

func numberOf(r *foreign.Request) C.uint64_t {
	requests.Lock()
	defer requests.Unlock()
	requests.last++
	requests.open[requests.last] = r
	return C.uint64_t(requests.last)
}

//export sarforeign_done
func sarforeign_done(number C.uint64_t, status C.sar_status, text *C.char) {
	requests.Lock()
	r := requests.open[uint64(number)]
	delete(requests.open, uint64(number))
	requests.Unlock()
	if r != nil {
		r.Done(failure(status, text))
	}
}

// longestText bounds what is believed of a library's message.
const longestText = C.SAR_TRANSPORT_TEXT

func failure(status C.sar_status, text *C.char) error {
	if status == C.SAR_OK {
		return nil
	}
	if text != nil {
		if n := C.strnlen(text, longestText); n > 0 {
			return errors.New(strings.ToValidUTF8(C.GoStringN(text, C.int(n)), "?"))
		}
	}
	switch status {
	case C.SAR_ERR_PEER_LOST:
		return errors.New("the peer is gone")
	case C.SAR_ERR_CLOSED:
		return errors.New("disconnected")
	}
	return fmt.Errorf("status %d", int(status))
}
