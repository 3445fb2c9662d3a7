package export

/*
#include <malloc.h>
#include "abi.h"
#include "pool.h"
*/
import "C"

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"sar/core/session"
)

// glibc keeps freed blocks for reuse, and the larger the blocks a program
// frees, the larger those it keeps: its threshold for giving memory back grows
// up to 32 MiB. A training step frees tensors of all sizes, so a process ends
// up holding many of them empty.
const (
	compactThreshold = 256 << 10
	// Where glibc's rule ends up in a process that has freed large blocks
	// (DEFAULT_MMAP_THRESHOLD_MAX; the trim threshold follows at twice that).
	largestMmapThreshold = 32 << 20
	largestTrimThreshold = 2 * largestMmapThreshold
)

var allocator struct {
	sync.Mutex
	fixed bool // glibc's thresholds are those of compact
}

// sar_set_allocator: compact fixes both of glibc's thresholds at 256 KiB, so
// that larger blocks are mappings of their own, and gives back what is free
// now. Setting a threshold turns glibc's growing rule off for good, and nothing
// turns it on again. So default sets the thresholds to where the rule ends up:
// large blocks are kept again, only earlier than glibc would. Where compact was
// never set, default changes nothing. With the pool, torch's larger blocks come
// from there, and everything else is as with compact.
//
//export sar_set_allocator
func sar_set_allocator(policy C.int32_t) C.sar_status {
	return guard("sar_set_allocator", func(*call) {
		allocator.Lock()
		defer allocator.Unlock()
		switch policy {
		case C.SAR_ALLOCATOR_POOL, C.SAR_ALLOCATOR_COMPACT:
			setThresholds(compactThreshold, compactThreshold)
			allocator.fixed = true
		case C.SAR_ALLOCATOR_DEFAULT:
			if allocator.fixed {
				setThresholds(largestMmapThreshold, largestTrimThreshold)
			}
			allocator.fixed = false
		default:
			refuse("sar_set_allocator(%d): 0 is default, 1 compact and 2 pool", policy)
		}
		C.pool_enable(0)
		session.LendFrom(nil)
		if policy == C.SAR_ALLOCATOR_POOL {
			need(openPool())
		}
		C.pool_trim()
		if allocator.fixed {
			C.malloc_trim(0)
		}
	})
}

func openPool() error {
	if failed := C.pool_open(compactThreshold); failed != 0 {
		return errors.New("the pool for large blocks cannot be set up: " + syscall.Errno(failed).Error())
	}
	if C.pool_redirect_torch() == 0 {
		return errors.New("torch's allocator cannot be reached in this process " +
			"(no libc10.so that calls posix_memalign and free): the policy compact works everywhere")
	}
	C.pool_enable(1)
	session.LendFrom(pool{})
	return nil
}

// pool lends the engine blocks of the pool: what a call computes with takes the place of tensors that are not in use.
type pool struct{}

// lent is how many bytes the engine has.
var lent atomic.Int64

func (pool) Least() int { return compactThreshold }

func (pool) Lend(n int) []byte {
	var at unsafe.Pointer
	if C.pool_memalign(&at, 64, C.size_t(n)) != 0 {
		return nil
	}
	lent.Add(int64(n))
	return unsafe.Slice((*byte)(at), n)
}

func (pool) LendBehind(b []byte, size int) []byte {
	block := unsafe.Pointer(unsafe.SliceData(b))
	at := C.pool_behind(block, C.size_t(len(b)), C.size_t(size))
	if at == nil {
		return nil
	}
	n := size - int(uintptr(at)-uintptr(block))
	lent.Add(int64(n))
	return unsafe.Slice((*byte)(at), n)
}

func (pool) Return(b []byte) {
	lent.Add(-int64(len(b)))
	C.pool_free(unsafe.Pointer(unsafe.SliceData(b)))
}

func init() {
	session.SetTensors(func() (session.Usage, int64) {
		u := C.pool_stats()
		return session.Usage{Live: int64(u.live) - lent.Load(), Peak: int64(u.peak)}, int64(u.kept)
	})
}

func setThresholds(mmap, trim C.int) {
	demand(C.mallopt(C.M_MMAP_THRESHOLD, mmap) != 0 && C.mallopt(C.M_TRIM_THRESHOLD, trim) != 0,
		"the C library refused thresholds of %d and %d bytes: its allocator is not glibc's", mmap, trim)
}

// sar_pool_stats tells what torch's larger blocks take under the pool; zeros
// where it was never chosen.
//
//export sar_pool_stats
func sar_pool_stats(json **C.char) C.sar_status {
	return guard("sar_pool_stats", func(*call) {
		u := C.pool_stats()
		giveJSON(json, map[string]int64{
			"live": int64(u.live), "kept": int64(u.kept), "peak": int64(u.peak), "fresh": int64(u.fresh),
		})
	})
}

// sar_pool_room puts this thread's next block where so many bytes behind it are free.
//
//export sar_pool_room
func sar_pool_room(size C.uint64_t) { C.pool_room(C.size_t(size)) }

// sar_pool_trim gives back what the pool keeps; its peak starts anew.
//
//export sar_pool_trim
func sar_pool_trim() { C.pool_trim() }
