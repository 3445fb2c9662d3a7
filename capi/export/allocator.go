package export

/*
#include <malloc.h>
#include "abi.h"
*/
import "C"

import "sync"

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
	compact bool
}

// sar_set_allocator: compact fixes both thresholds at 256 KiB, so that larger
// blocks are mappings of their own, and gives back what is free now. Setting a
// threshold turns glibc's growing rule off for good, and nothing turns it on
// again. So default sets the thresholds to where the rule ends up: large blocks
// are kept again, only earlier than glibc would. Where compact was never set,
// default changes nothing.
//
//export sar_set_allocator
func sar_set_allocator(compact C.int32_t) C.sar_status {
	return guard("sar_set_allocator", func(*call) error {
		allocator.Lock()
		defer allocator.Unlock()
		switch {
		case compact == 1:
			if err := setThresholds(compactThreshold, compactThreshold); err != nil {
				return err
			}
			C.malloc_trim(0)
		case compact != 0:
			return invalid("sar_set_allocator(%d): 1 is compact and 0 is default", compact)
		case allocator.compact:
			if err := setThresholds(largestMmapThreshold, largestTrimThreshold); err != nil {
				return err
			}
		}
		allocator.compact = compact == 1
		return nil
	})
}

func setThresholds(mmap, trim C.int) error {
	if C.mallopt(C.M_MMAP_THRESHOLD, mmap) == 0 || C.mallopt(C.M_TRIM_THRESHOLD, trim) == 0 {
		return invalid("the C library refused thresholds of %d and %d bytes: its allocator is not glibc's", mmap, trim)
	}
	return nil
}
