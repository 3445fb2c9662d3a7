package comm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sar/core/internal/dtypes"
	"sar/core/internal/freeport"
)

// These tests run workers as processes of their own: this test binary, started
// again with workerEnv.
const workerEnv = "COMM_TEST_WORKER"

// job is what a worker is told.
type job struct {
	Config Config
	Do     string // "reduce": all-reduce without end; "idle": wait, then a barrier
	Window int
}

// outcome is what a worker prints at its end.
type outcome struct {
	Type, Text, Phase, Host, Reason string
	Rank                            int
	Seconds                         float64 // from the end of the last good call to the error
}

func TestMain(m *testing.M) {
	if text := os.Getenv(workerEnv); text != "" {
		work(text)
		return
	}
	os.Exit(m.Run())
}

func work(text string) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		panic(err)
	}
	begin := time.Now()
	err := do(j, &begin)
	var out outcome
	var lost *PeerLost
	if errors.As(err, &lost) {
		out = outcome{Phase: lost.Phase, Host: lost.Host, Reason: lost.Reason, Rank: lost.Rank}
	}
	out.Type, out.Text, out.Seconds = fmt.Sprintf("%T", err), fmt.Sprint(err), time.Since(begin).Seconds()
	b, _ := json.Marshal(out)
	fmt.Println(string(b))
}

func do(j job, last *time.Time) error {
	if j.Do == "starved" {
		return joinStarved(j.Config)
	}
	g, err := Join(j.Config)
	if err != nil {
		return err
	}
	defer g.Close()
	c, err := g.NewCommunicator("train", j.Window)
	if err != nil {
		return err
	}
	if err := c.Barrier(); err != nil {
		return err
	}
	if j.Do == "idle" {
		fmt.Println("ready")
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return err
		}
		*last = time.Now()
		return c.Barrier()
	}
	buf := make([]byte, 1<<20)
	for k := 0; ; k++ {
		if err := c.AllReduce(buf, dtypes.Float32, Sum); err != nil {
			return err
		}
		*last = time.Now()
		if k == 5 {
			fmt.Println("ready")
		}
	}
}

// worker is a started process.
type worker struct {
	cmd   *exec.Cmd
	out   *bufio.Scanner
	stdin *os.File
}

// startWorkers starts one process per rank and waits until all are ready.
func startWorkers(t *testing.T, world int, what string, change func(c *Config)) []*worker {
	t.Helper()
	workers := make([]*worker, world)
	for r, cfg := range configs(freeport.Find(), world, change) {
		text, _ := json.Marshal(job{Config: cfg, Do: what, Window: 1 << 20})
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, stdin, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = in
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = in.Close()
		workers[r] = &worker{cmd, bufio.NewScanner(out), stdin}
		t.Cleanup(func() {
			_ = stdin.Close()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	for r, w := range workers {
		if !w.out.Scan() || w.out.Text() != "ready" {
			t.Fatalf("rank %d: %s", r, w.out.Text())
		}
	}
	return workers
}

// end waits for a worker's outcome.
func (w *worker) end(t *testing.T) outcome {
	t.Helper()
	timer := time.AfterFunc(20*time.Second, func() { _ = w.cmd.Process.Kill() })
	defer timer.Stop()
	var o outcome
	if !w.out.Scan() {
		t.Fatal("a worker hangs or ended without a word")
	}
	if err := json.Unmarshal(w.out.Bytes(), &o); err != nil {
		t.Fatalf("%v: %s", err, w.out.Text())
	}
	return o
}

// survivorsLose checks that every worker but lost names it within limit.
func survivorsLose(t *testing.T, workers []*worker, lost int, limit time.Duration, phase string) {
	t.Helper()
	host, _ := os.Hostname()
	for r, w := range workers {
		if r == lost {
			continue
		}
		o := w.end(t)
		if o.Type != "*comm.PeerLost" || o.Rank != lost || o.Host != host || !strings.Contains(o.Phase, phase) {
			t.Errorf("rank %d: %+v", r, o)
		}
		if o.Seconds > limit.Seconds() {
			t.Errorf("rank %d took %g s", r, o.Seconds)
		}
	}
}

func TestKilledInAllReduce(t *testing.T) {
	for _, transport := range []string{"shm", "tcp"} {
		for _, victim := range []int{0, 2} {
			t.Run(transport+strconv.Itoa(victim), func(t *testing.T) {
				workers := startWorkers(t, 3, "reduce", func(c *Config) { c.Transport = transport })
				_ = workers[victim].cmd.Process.Signal(unix.SIGKILL)
				survivorsLose(t, workers, victim, 2*time.Second, "all-reduce")
			})
		}
	}
}

// others lets every worker but one go on that waits.
func others(workers []*worker, but int) {
	for r, w := range workers {
		if r != but {
			_, _ = w.stdin.WriteString("\n")
		}
	}
}

// meshAndStar are a world in which all ranks have connections for control, and one in which rank 0
// passes on what they say.
var meshAndStar = []int{3, mostMeshed + 2}

func TestKilledBetweenOperations(t *testing.T) {
	for _, world := range meshAndStar {
		for _, victim := range []int{0, 1} {
			t.Run(fmt.Sprint(world, victim), func(t *testing.T) {
				workers := startWorkers(t, world, "idle", nil)
				_ = workers[victim].cmd.Process.Signal(unix.SIGKILL)
				_ = workers[victim].cmd.Wait()
				others(workers, victim)
				phase := ""
				if world == 3 { // among more, not everyone has had a frame of the victim
					phase = "barrier (operation 1"
				}
				survivorsLose(t, workers, victim, 2*time.Second, phase)
			})
		}
	}
}

// Rank 0 notices who is stopped, and tells those who have no connection to it for control. That
// rank 0 is stopped everyone notices, some later than others have left because of it.
func TestStoppedAmongMany(t *testing.T) {
	for _, victim := range []int{0, 3} {
		t.Run(strconv.Itoa(victim), func(t *testing.T) {
			t.Parallel()
			workers := startWorkers(t, mostMeshed+2, "idle", func(c *Config) { c.Liveness = 5 * time.Second })
			_ = workers[victim].cmd.Process.Signal(unix.SIGSTOP)
			others(workers, victim)
			survivorsLose(t, workers, victim, 10*time.Second, "")
		})
	}
}

func TestStoppedPastLiveness(t *testing.T) {
	t.Parallel()
	for _, victim := range []int{0, 1} {
		t.Run(strconv.Itoa(victim), func(t *testing.T) {
			t.Parallel()
			workers := startWorkers(t, 3, "reduce", func(c *Config) { c.Liveness = 3 * time.Second })
			_ = workers[victim].cmd.Process.Signal(unix.SIGSTOP)
			survivorsLose(t, workers, victim, 5*time.Second, "all-reduce")
			// Woken up, it finds that it was given up.
			_ = workers[victim].cmd.Process.Signal(unix.SIGCONT)
			if o := workers[victim].end(t); o.Type == "<nil>" {
				t.Errorf("the victim: %+v", o)
			}
		})
	}
}

// A pause shorter than the deadline harms nobody, nor does being idle for longer.
func TestPausedWithinLiveness(t *testing.T) {
	t.Parallel()
	workers := startWorkers(t, 2, "idle", func(c *Config) { c.Liveness = 3 * time.Second })
	_ = workers[1].cmd.Process.Signal(unix.SIGSTOP)
	time.Sleep(time.Second)
	_ = workers[1].cmd.Process.Signal(unix.SIGCONT)
	time.Sleep(3500 * time.Millisecond)
	for _, w := range workers {
		_, _ = w.stdin.WriteString("\n")
	}
	for r, w := range workers {
		if o := w.end(t); o.Type != "<nil>" {
			t.Errorf("rank %d: %+v", r, o)
		}
	}
}

// A worker that ends in good order while others wait for it is no riddle.
func TestShutDownWhileOthersWait(t *testing.T) {
	for _, world := range meshAndStar {
		workers := startWorkers(t, world, "idle", nil)
		_ = workers[1].stdin.Close() // its read fails, it closes the group
		if o := workers[1].end(t); o.Type != "*errors.errorString" {
			t.Fatalf("%+v", o)
		}
		others(workers, 1)
		for r, w := range workers {
			if r == 1 {
				continue
			}
			o := w.end(t)
			if o.Type != "*comm.PeerLost" || o.Rank != 1 || o.Reason != shutDown || o.Seconds > 1 {
				t.Errorf("%d workers: rank %d: %+v", world, r, o)
			}
		}
	}
}
