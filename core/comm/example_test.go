package comm_test

import (
	"encoding/binary"
	"fmt"
	"sync"

	"sar/core/comm"
	"sar/core/internal/dtypes"
)

// Three workers add up their ranks. Here they live in one process (Local); workers that are
// processes call Join.
func Example() {
	groups, err := comm.Local(comm.Config{World: 3})
	if err != nil {
		panic(err)
	}
	sums := make([]uint64, len(groups))
	var workers sync.WaitGroup
	for rank, g := range groups {
		workers.Go(func() {
			defer func() { _ = g.Close() }()
			c, err := g.NewCommunicator("sums", 1<<20) // bytes of window for its links
			if err != nil {
				panic(err)
			}
			buf := binary.LittleEndian.AppendUint64(nil, uint64(rank))
			if err := c.AllReduce(buf, dtypes.Int64, comm.Sum); err != nil {
				panic(err)
			}
			sums[rank] = binary.LittleEndian.Uint64(buf)
		})
	}
	workers.Wait()
	fmt.Println(sums)
	// Output: [3 3 3]
}
