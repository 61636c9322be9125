// Command cron runs a job once per period although every host of a service has a
// timer for it. The hosts' clocks differ, and the job ends at once: without a
// least hold, a host whose clock is behind would find the lock free and run the
// job again.
//
//	go run ./cron
//	LOCK_URL=redis://localhost:6379 go run ./cron
//
// It exits with 1 if the job ran twice in a period, or not at all. For a job that
// is a command, `interlock run --min-hold` does the same.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/all" // every URL scheme
)

// schedule is when the job runs, and how wrong the hosts' clocks are.
type schedule struct {
	period  time.Duration
	periods int
	skew    time.Duration // between the first host and the last
	hosts   int
	minHold time.Duration // more than the skew, less than the period without it
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("cron: ")
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := os.Getenv("LOCK_URL")
	if url == "" {
		url = "memory://cron"
	}
	s := schedule{
		period: 1500 * time.Millisecond, periods: 3, skew: 200 * time.Millisecond,
		hosts: 4, minHold: time.Second,
	}
	return demo(ctx, os.Stdout, url, s)
}

// demo runs the schedule and prints on which host each period's job ran.
func demo(ctx context.Context, out io.Writer, url string, s schedule) error {
	var (
		mu  sync.Mutex
		ran = make([][]string, s.periods)
		wg  sync.WaitGroup
	)
	errs := make([]error, s.hosts)
	start := time.Now().Add(s.period / 2)
	for i := range s.hosts {
		name := fmt.Sprintf("host-%d", i+1)
		// A host of its own: nothing is shared but the store.
		locker, err := lock.Open(ctx, url, lock.Owner(name), lock.TTL(s.period), lock.MinHold(s.minHold))
		if err != nil {
			return err
		}
		defer locker.Close()
		behind := s.skew * time.Duration(i) / time.Duration(max(s.hosts-1, 1))
		wg.Go(func() {
			for p := range s.periods {
				at := start.Add(time.Duration(p)*s.period + behind)
				select {
				case <-time.After(time.Until(at)):
				case <-ctx.Done():
					errs[i] = ctx.Err()
					return
				}
				err := lock.TryDo(ctx, locker, "cron:nightly", func(context.Context, *lock.Handle) error {
					mu.Lock()
					defer mu.Unlock()
					ran[p] = append(ran[p], name)
					return nil // the job is done at once; the lock stays for MinHold
				})
				if err != nil && !errors.Is(err, lock.ErrHeld) {
					errs[i] = fmt.Errorf("%s: %w", name, err)
					return
				}
			}
		})
	}
	wg.Wait()
	err := errors.Join(errs...)
	for p, hosts := range ran {
		fmt.Fprintf(out, "period %d: ran on %v\n", p+1, hosts)
		if len(hosts) != 1 {
			err = errors.Join(err, fmt.Errorf("period %d: the job ran %d times", p+1, len(hosts)))
		}
	}
	return err
}
