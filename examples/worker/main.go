// Command worker shows how to stop in time: a worker that holds a lock on a
// partition of a queue works through it under a Context that ends with the
// request or with the lock. An administrator breaks the lock in the middle; the
// worker stops between two items, and the next one goes on where it was.
//
//	go run ./worker
//
// The store is in memory, as in a test of one's own code.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/memory"
)

const (
	partition = "partition:7"
	items     = 6
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("worker: ")
	if err := demo(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// queue is what the workers work through.
type queue struct {
	next  int
	after func(done int) // called after each item
}

// worker is one process of a service.
type worker struct {
	name   string
	locker lock.Locker
	out    io.Writer
}

// drain works through the queue under the partition's lock. It returns nil when
// the queue is empty, and why it stopped if it is not.
func (w worker) drain(request context.Context, q *queue) error {
	h, err := w.locker.Acquire(request, partition)
	if err != nil {
		return err
	}
	// Release tells of a loss, which the caller is told already.
	defer h.Release(request) //nolint:errcheck

	ctx, cancel := h.Join(request) // ends with the request or with the lock
	defer cancel()
	for q.next < items {
		if err := w.item(ctx, q.next); err != nil {
			return err
		}
		q.next++
		if q.after != nil {
			q.after(q.next)
		}
	}
	return nil
}

// item works on one item, and gives up as soon as ctx ends. How long it would
// take is nothing that another holder has to wait for.
func (w worker) item(ctx context.Context, n int) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(5 * time.Millisecond):
	}
	if ctx.Err() != nil { // both may have come to pass
		return context.Cause(ctx)
	}
	fmt.Fprintf(w.out, "%s: item %d\n", w.name, n+1)
	return nil
}

func demo(ctx context.Context, out io.Writer) error {
	store := memory.NewStore()
	var workers []worker
	for _, name := range []string{"a", "b"} {
		l, err := memory.New(ctx, store, lock.Owner(name))
		if err != nil {
			return err
		}
		defer l.Close()
		workers = append(workers, worker{name, l, out})
	}

	q := &queue{after: func(done int) {
		if done == 2 {
			fmt.Fprintln(out, "administrator: broke the lock:", store.Break(partition))
		}
	}}
	err := workers[0].drain(ctx, q)
	var lost *lock.LostError
	if !errors.As(err, &lost) {
		return fmt.Errorf("worker a did not notice: %w", err)
	}
	fmt.Fprintln(out, "a: stopped:", lost.Cause)
	return workers[1].drain(ctx, q)
}
