package comm

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sar/core/internal/freeport"
)

// joinStarved joins with one descriptor left: that of the first socket, after
// which Go's runtime would end the process, as it cannot wait for it.
func joinStarved(cfg Config) error {
	free, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	limit := uint64(free) + 1
	if err := errors.Join(unix.Close(free), unix.Setrlimit(unix.RLIMIT_NOFILE,
		&unix.Rlimit{Cur: limit, Max: limit})); err != nil {
		return err
	}
	_, err = Join(cfg)
	return err
}

func TestNoDescriptorsToJoinWith(t *testing.T) {
	text, _ := json.Marshal(job{Config: configs(freeport.Find(), 3, nil)[1], Do: "starved"})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	b, err := cmd.CombinedOutput()
	var o outcome
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil || o.Type != "*comm.RendezvousError" {
		t.Fatalf("%v: %s", err, b)
	}
	for _, part := range []string{"rank 1 needs 8 more file descriptors", "too many open files", "ulimit -n"} {
		if !strings.Contains(o.Text, part) {
			t.Errorf("%q is not in %q", part, o.Text)
		}
	}
}
