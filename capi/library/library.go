// Package library has network libraries that are opened at run time as transports: UCX, and MPI by
// the standard binary interface of MPI 5. Nothing of them is needed to build. Each is a table of
// functions as sar.h describes them, written in C, and has one thread that alone calls the library.
package library

/*
#cgo CFLAGS: -std=gnu11 -Wall
#cgo LDFLAGS: -ldl -lpthread
#include <stdlib.h>
#include "mpi.h"
#include "ucx.h"
*/
import "C"

import "unsafe"

// UCX is the sar_transport of libucp. It lives as long as the process.
func UCX() unsafe.Pointer { return unsafe.Pointer(C.ucx_table()) }

// MPI is the sar_transport of libmpi_abi. It lives as long as the process.
func MPI() unsafe.Pointer { return unsafe.Pointer(C.mpi_table()) }

// Further tells of a file to open for a transport where neither its variable in the environment nor
// the system has one. It counts until the library is open, and says whether there is such a transport.
func Further(name, file string) bool {
	library := map[string]*C.struct_library{"ucx": &C.ucx_library, "mpi": &C.mpi_library}[name]
	if library == nil {
		return false
	}
	f := C.CString(file)
	defer C.free(unsafe.Pointer(f))
	C.library_is_at(library, f)
	return true
}

// hasDevice tells whether a folder lists RDMA devices. Without one UCX is not even loaded unless it is asked for.
func hasDevice(folder string) bool {
	f := C.CString(folder)
	defer C.free(unsafe.Pointer(f))
	return bool(C.ucx_has_device(f))
}

// listed are the transports in what UCX prints about a context or an endpoint. With a remote one among those of the
// context, UCX is used without being asked for.
func listed(printed string) (names string, remote bool) {
	p := C.CString(printed)
	defer C.free(unsafe.Pointer(p))
	var list [C.SAR_TRANSPORT_TEXT]C.char
	remote = bool(C.ucx_list(&list[0], p))
	return C.GoString(&list[0]), remote
}

// End does what C's exit does: it finalizes MPI where this process has initialized it. A Go program,
// which leaves without that, calls it last.
func End() { C.mpi_end() }
