package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// job is what a worker is to do.
type job struct {
	Stock  shelf         `json:"stock"`
	URL    string        `json:"url"` // of the locks; "" for none
	Orders int           `json:"orders"`
	Think  time.Duration `json:"think"`
}

// result is what a worker did.
type result struct {
	Sold        int           `json:"sold"`
	LongestWait time.Duration `json:"longest_wait"`
}

var errSoldOut = errors.New("sold out")

// shelf is the stock: a number in a file, as one row of a table would be. It
// neither locks nor compares anything.
type shelf string

func (s shelf) read() (int, error) {
	text, err := os.ReadFile(string(s))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// write replaces the file, so that nobody reads half a number.
func (s shelf) write(left int) error {
	f, err := os.CreateTemp(filepath.Dir(string(s)), "new")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails once it was renamed
	if _, err := fmt.Fprintln(f, left); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), string(s))
}

// sellOne reads, thinks and writes.
func (j job) sellOne(ctx context.Context) error {
	left, err := j.Stock.read()
	if err != nil {
		return err
	}
	if left <= 0 {
		return errSoldOut
	}
	select {
	case <-time.After(j.Think):
	case <-ctx.Done(): // also if the lock was lost: then another may be selling
		return context.Cause(ctx)
	}
	return j.Stock.write(left - 1)
}

// work sells until its orders are done or the stock is. Its locker is nil if it
// is to work without a lock.
func (j job) work(ctx context.Context, locker lock.Locker) (result, error) {
	var r result
	for range j.Orders {
		var err error
		if locker == nil {
			err = j.sellOne(ctx)
		} else {
			asked := time.Now()
			err = lock.Do(ctx, locker, sku, func(ctx context.Context, _ *lock.Handle) error {
				r.LongestWait = max(r.LongestWait, time.Since(asked))
				return j.sellOne(ctx)
			})
		}
		if errors.Is(err, errSoldOut) {
			break
		}
		if err != nil {
			return r, err
		}
		r.Sold++
	}
	return r, nil
}

// open opens the job's Locker, if it has one.
func (j job) open(ctx context.Context) (lock.Locker, error) {
	if j.URL == "" {
		return nil, nil
	}
	return lock.Open(ctx, j.URL, lock.TTL(10*time.Second))
}

// starter runs a job in several workers, which begin at the same moment, and
// says when that was.
type starter func(ctx context.Context, workers int, j job) (began time.Time, results []result, err error)

// startGoroutine runs the workers in this process, each with its own Locker.
func startGoroutine(ctx context.Context, workers int, j job) (began time.Time, results []result, err error) {
	lockers := make([]lock.Locker, workers)
	for i := range lockers {
		if lockers[i], err = j.open(ctx); err != nil {
			return began, nil, err
		}
		if lockers[i] != nil {
			defer lockers[i].Close()
		}
	}
	results, errs := make([]result, workers), make([]error, workers)
	began = time.Now()
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { results[i], errs[i] = j.work(ctx, lockers[i]) })
	}
	wg.Wait()
	return began, results, errors.Join(errs...)
}

// workerEnv makes the program a worker. It reads its job from standard input,
// says that it is ready, begins when standard input ends, and writes its result
// to standard output.
const workerEnv = "INVENTORY_WORKER"

// startProcess runs each worker as a process: this program, executed again.
func startProcess(ctx context.Context, workers int, j job) (began time.Time, results []result, err error) {
	self, err := os.Executable()
	if err != nil {
		return began, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running []*process
	defer func() { // after an error no worker stays
		cancel()
		for _, p := range running {
			_ = p.wait() // its first caller was told
		}
	}()
	for range workers {
		p, err := spawn(ctx, self, j)
		if err != nil {
			return began, nil, err
		}
		running = append(running, p)
	}
	for _, p := range running {
		if _, err := p.out.ReadString('\n'); err != nil {
			return began, nil, fmt.Errorf("worker did not start: %w", errors.Join(p.wait(), err))
		}
	}
	began = time.Now()
	for _, p := range running {
		p.in.Close()
	}
	results = make([]result, workers)
	for i, p := range running {
		decodeErr := json.NewDecoder(p.out).Decode(&results[i])
		if err := p.wait(); err != nil {
			return began, nil, fmt.Errorf("worker: %w", err)
		}
		if decodeErr != nil {
			return began, nil, fmt.Errorf("worker's result: %w", decodeErr)
		}
	}
	return began, results, nil
}

// process is a worker that runs.
type process struct {
	in   io.WriteCloser
	out  *bufio.Reader
	wait func() error // may be called again
}

func spawn(ctx context.Context, self string, j job) (*process, error) {
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{in: in, out: bufio.NewReader(out), wait: sync.OnceValue(cmd.Wait)}
	if err := json.NewEncoder(in).Encode(j); err != nil {
		return nil, fmt.Errorf("worker did not start: %w", errors.Join(p.wait(), err))
	}
	return p, nil
}

// serveWorker is the other end of startProcess.
func serveWorker(ctx context.Context, in io.Reader, out io.Writer) error {
	var j job
	orders := json.NewDecoder(in)
	if err := orders.Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	locker, err := j.open(ctx)
	if err != nil {
		return err
	}
	if locker != nil {
		defer locker.Close()
	}
	fmt.Fprintln(out, "ready")
	if _, err := orders.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("wait for the start: %w", err)
	}
	r, err := j.work(ctx, locker)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}
