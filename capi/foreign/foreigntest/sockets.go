// Package foreigntest has the transport of the C example for the tests of package foreign, as
// tests cannot contain C.
package foreigntest

/*
#cgo CFLAGS: -I${SRCDIR}/.. -I${SRCDIR}/../../../examples/c
#define _GNU_SOURCE
#include "sockets.h"

static const void *sockets(void) { return &sockets_transport; }
*/
import "C"

import "unsafe"

// Sockets is the table of the transport named "sockets".
func Sockets() unsafe.Pointer { return C.sockets() }
