package must

import (
	"errors"
	"testing"
)

var errStep = errors.New("step")

func steps(fail error, other any) (n int, err error) {
	defer Return(&err)
	n = Get(1, nil)
	Do(nil)
	if other != nil {
		panic(other)
	}
	n = Get(2, fail)
	return n, nil
}

func TestReturnsTheErrorOfTheStepThatFailed(t *testing.T) {
	if n, err := steps(nil, nil); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := steps(errStep, nil); n != 1 || err != errStep {
		t.Errorf("%d, %v", n, err)
	}
}

func TestOtherPanicsGoOn(t *testing.T) {
	defer func() {
		if p := recover(); p != "other" {
			t.Errorf("%v", p)
		}
	}()
	_, _ = steps(nil, "other")
}
