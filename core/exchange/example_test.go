package exchange_test

import (
	"fmt"
	"log"
	"sync"

	"sar/core/comm"
	"sar/core/exchange"
)

// Two workers send each other three rows of one byte, and get the doubles back.
func ExampleRoundTrip() {
	groups, err := comm.Local(comm.Config{World: 2})
	if err != nil {
		log.Fatal(err)
	}
	var lines [2]string
	var wg sync.WaitGroup
	for rank, group := range groups {
		wg.Go(func() {
			defer group.Close()
			c, err := group.NewCommunicator("example", 1<<16)
			if err != nil {
				log.Fatal(err)
			}
			op, err := c.Begin(comm.KindAggregate, comm.Forward)
			if err != nil {
				log.Fatal(err)
			}
			m := &exchange.RoundTrip{
				Op: op, RowBytes: 1, ReplyBytes: 1, Send: []int{0, 3}, Recv: []int{0, 3},
				Produce: func(round, first, n int, dst []byte) error {
					for i := range n {
						dst[i] = byte(10*rank + first + i)
					}
					return nil
				},
				Compute: func(round, first, n int, src, reply []byte) error {
					for i, row := range src {
						reply[i] = 2 * row
					}
					return nil
				},
				Take: func(round, first, n int, src []byte) error {
					lines[rank] = fmt.Sprint("rank ", rank, " got back ", src)
					return nil
				},
			}
			_, err = m.Move(rank, 2)
			if err := op.End(err); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	fmt.Println(lines[0])
	fmt.Println(lines[1])
	// Output:
	// rank 0 got back [0 2 4]
	// rank 1 got back [20 22 24]
}
