package comm

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"sar/core/internal/argument"
)

// TestValues has every rank ask for values, all at once and rank 0 among them, without any other call.
func TestValues(t *testing.T) {
	groups, err := Local(Config{World: 3})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(rank int, r ValueRequest) ValueReply {
		t.Helper()
		reply, err := groups[rank].Value(r)
		if err != nil {
			t.Error(err)
		}
		reply.ID = 0
		return reply
	}
	for rank := range groups {
		key, other := string(rune('a'+rank)), (rank+1)%3
		for i, step := range []struct {
			rank int
			ValueRequest
			value  string
			there  bool
			number int64
		}{
			{rank, ValueRequest{Op: "get", Key: key}, "", false, 0},
			{other, ValueRequest{Op: "swap", Key: key, Old: []byte("x"), Value: []byte("y")}, "", false, 0},
			{other, ValueRequest{Op: "swap", Key: key, Value: []byte("y")}, "y", false, 0},
			{rank, ValueRequest{Op: "swap", Key: key, Value: []byte("z")}, "y", true, 0},
			{rank, ValueRequest{Op: "swap", Key: key, Old: []byte("y"), Value: []byte("z")}, "z", true, 0},
			{rank, ValueRequest{Op: "set", Key: key, Value: []byte{0, 255}}, "", true, 0},
			{other, ValueRequest{Op: "get", Key: key}, "\x00\xff", true, 0},
			{rank, ValueRequest{Op: "count"}, "", false, int64(rank + 1)},
			{rank, ValueRequest{Op: "delete", Key: key}, "", true, 0},
			{other, ValueRequest{Op: "get", Key: key}, "", false, 0},
			{other, ValueRequest{Op: "add", Key: key, Add: 3}, "", false, 3},
			{rank, ValueRequest{Op: "add", Key: key, Add: -5}, "", true, -2},
			{rank, ValueRequest{Op: "get", Key: key}, "-2", true, 0},
		} {
			got := ask(step.rank, step.ValueRequest)
			if !bytes.Equal(got.Value, []byte(step.value)) || got.There != step.there || got.Number != step.number {
				t.Errorf("rank %d, step %d, %+v: %+v", rank, i, step, got)
			}
		}
	}
	var wg sync.WaitGroup
	for rank := range groups {
		for range 20 {
			wg.Go(func() { ask(rank, ValueRequest{Op: "add", Key: "sum", Add: int64(rank)}) })
		}
	}
	wg.Wait()
	if sum := ask(2, ValueRequest{Op: "add", Key: "sum"}).Number; sum != 60 {
		t.Errorf("20·(0+1+2) is %d", sum)
	}
	var wrong *argument.Error
	for _, r := range []ValueRequest{{Op: "ask"}, {Op: "set", Value: make([]byte, maxValue+1)}} {
		if _, err := groups[1].Value(r); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", r.Op, err)
		}
	}
	groups[0].Close()
	var lost *PeerLost
	if _, err := groups[1].Value(ValueRequest{Op: "count"}); !errors.As(err, &lost) || lost.Rank != 0 {
		t.Errorf("without rank 0: %v", err)
	}
	groups[1].Close()
	if _, err := groups[1].Value(ValueRequest{Op: "count"}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	groups[2].Close()
}
