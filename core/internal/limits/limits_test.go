package limits

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestExplain(t *testing.T) {
	for err, words := range map[error]string{
		unix.EMFILE:  "ulimit -n",
		unix.ENFILE:  "fs.file-max",
		unix.ENOBUFS: "net.core.wmem_max",
	} {
		wrapped := fmt.Errorf("accept: %w", err)
		got := Explain(wrapped)
		if !Exhausted(wrapped) || !errors.Is(got, err) || !strings.Contains(got.Error(), words) {
			t.Errorf("%v became %v", err, got)
		}
	}
	if Explain(nil) != nil || Exhausted(nil) || Exhausted(unix.ECONNREFUSED) ||
		Explain(unix.ECONNREFUSED) != error(unix.ECONNREFUSED) {
		t.Error("other errors do not stay as they are")
	}
}
