package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/interlock-go/lock"
)

// options are the settings of the lock.
func (o *runOptions) options(r *reporter, renewed chan<- struct{}) []lock.SetupOption {
	opts := []lock.SetupOption{lock.Observe(func(_ context.Context, e lock.Event) {
		if e.Kind == lock.EventRenew {
			select {
			case renewed <- struct{}{}:
			default:
			}
		}
	})}
	if r.log != nil {
		opts = append(opts, lock.Logger(r.log))
	}
	if o.ttl > 0 {
		opts = append(opts, lock.TTL(o.ttl))
	}
	if o.minHold > 0 {
		opts = append(opts, lock.MinHold(o.minHold))
	}
	if o.maxHold > 0 {
		opts = append(opts, lock.MaxHold(o.maxHold))
	}
	if o.owner != "" {
		opts = append(opts, lock.Owner(o.owner))
	}
	return opts
}

// attemptTimeout bounds the opening, and a single try, on a store that does not
// answer.
const attemptTimeout = 10 * time.Second

// acquire opens the store and takes the lock.
func (o *runOptions) acquire(ctx context.Context, url, name string, opts []lock.SetupOption) (lock.Locker, *lock.Handle, error) {
	cancel := context.CancelFunc(func() {})
	switch {
	case !o.wait.set || o.wait.d == 0:
		ctx, cancel = context.WithTimeout(ctx, attemptTimeout)
	case !o.wait.forever:
		ctx, cancel = context.WithTimeout(ctx, o.wait.d)
	}
	defer cancel()
	locker, err := o.open(ctx, url, opts)
	if err != nil {
		return nil, nil, err
	}
	var own []lock.Option
	if locker.Guarantees().Fencing > lock.FencingNone {
		own = append(own, lock.WithToken())
	}
	take := locker.Acquire
	if !o.wait.set || o.wait.d == 0 && !o.wait.forever {
		take = locker.TryAcquire
	}
	h, err := take(ctx, name, own...)
	return locker, h, err
}

// open opens the store, and goes on trying while it is away if the lock is to be
// waited for.
func (o *runOptions) open(ctx context.Context, url string, opts []lock.SetupOption) (lock.Locker, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		locker, err := lock.Open(attempt, url, opts...)
		cancel()
		if err == nil || !o.wait.set || !errors.Is(err, lock.ErrUnavailable) || ctx.Err() != nil {
			return locker, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// notAcquired reports why there is no lock, and returns the exit code.
func notAcquired(r *reporter, cmd *cobra.Command, err error) int {
	switch {
	case errors.Is(err, lock.ErrHeld):
		r.held(err)
		return exitHeld
	case errors.Is(err, lock.ErrInvalid), errors.Is(err, lock.ErrUnsupported), errors.Is(err, lock.ErrNoToken):
		return r.misuse(cmd, err)
	}
	r.fail("unavailable", err.Error())
	return exitUnavailable
}

// interruptible returns a context that a signal ends, and a function that stops
// listening and says which signal that was.
func interruptible() (context.Context, func() os.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	c := make(chan os.Signal, 1)
	for _, s := range endingSignals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	got, stop, done := os.Signal(nil), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case got = <-c:
			cancel()
		case <-stop:
		}
	}()
	return ctx, func() os.Signal {
		signal.Stop(c)
		close(stop)
		<-done
		cancel()
		return got
	}
}

// waitFlag is a duration or "forever".
type waitFlag struct {
	set, forever bool
	d            time.Duration
}

func (w *waitFlag) Set(s string) error {
	*w = waitFlag{set: true, forever: s == "forever"}
	if w.forever {
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New(`want a duration such as 30s, or "forever"`)
	}
	w.d = d
	return nil
}

func (w *waitFlag) String() string {
	switch {
	case w.forever:
		return "forever"
	case w.set:
		return w.d.String()
	}
	return ""
}

func (w *waitFlag) Type() string { return "duration" }
