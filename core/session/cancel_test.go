package session

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestCancelAborts(t *testing.T) {
	reason := errors.New("lunch")
	errs := tryWorkers(t, 2, Config{}, func(s *Session) error {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		if s.Rank() == 0 {
			time.AfterFunc(20*time.Millisecond, func() { cancel(reason) })
			return s.Barrier(ctx, Reduce)
		}
		for s.group.Failure() == nil { // it never comes
			time.Sleep(time.Millisecond)
		}
		return s.Barrier(ctx, Reduce)
	})
	var remote *RemoteError
	if !errors.Is(errs[0], reason) {
		t.Errorf("who cancelled got %v", errs[0])
	}
	if !errors.As(errs[1], &remote) || remote.Rank != 0 || remote.Message != reason.Error() {
		t.Errorf("the other worker got %v", errs[1])
	}
}

func TestCancelWhileMeeting(t *testing.T) {
	for name, limit := range map[string]func() (context.Context, context.CancelFunc){
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 50*time.Millisecond)
		},
		"cancelled": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := limit()
			defer cancel()
			begin := time.Now()
			s, err := Open(ctx, Config{
				Rank: 1, World: 2, MasterAddr: "127.0.0.1", MasterPort: 9, JobToken: "the token of a test", Start: 20 * time.Second,
			})
			if err == nil {
				s.Close()
				t.Fatal("nobody was there")
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("Open returned %v after %v", err, took)
			}
		})
	}
}
