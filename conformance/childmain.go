package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// Child returns at once, unless this process was started as a child of the
// suite: then it plays that part, and ends the process. Run calls it first; a
// program that calls Verify has to, before all else.
func Child(s Subject) {
	url, ok := os.LookupEnv(childEnv)
	if !ok {
		return
	}
	if s.Open == nil {
		s.Open = lock.Open
	}
	s.seam.fill()
	out := json.NewEncoder(os.Stdout)
	answer := func(r reply) {
		os.Stdout.WriteString(replyMark)
		if err := out.Encode(r); err != nil {
			os.Exit(1) // the suite is gone
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	l, err := s.Open(ctx, url)
	cancel()
	answer(told(err))
	if err != nil {
		os.Exit(1)
	}
	p := &part{locker: s.seam.locker(l), handles: make(map[string]*watched)}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			answer(told(err))
			continue
		}
		answer(p.play(o))
	}
	os.Exit(0) // the suite has closed our input
}

// told is the reply that carries an error.
func told(err error) reply {
	if err == nil {
		return reply{}
	}
	r := reply{Err: err.Error()}
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			r.Is = append(r.Is, name)
		}
	}
	slices.Sort(r.Is)
	return r
}

// part is a child's side.
type part struct {
	locker  lock.Locker
	handles map[string]*watched
	cycles  *cycling
}

// watched is a handle of the child.
type watched struct {
	*lock.Handle
	over chan struct{} // closed when Err says that the lock is not ours, and Context has ended

	mu     sync.Mutex
	lastOK time.Duration
	ended  time.Duration
}

func (p *part) play(o order) reply {
	ctx, cancel := context.WithTimeout(context.Background(), max(o.Within, 5*time.Second))
	defer cancel()
	switch o.Op {
	case "take":
		return p.take(ctx, o)
	case "cycle":
		p.cycles = p.cycle(o)
		return reply{}
	case "stop cycling":
		return p.cycles.end(ctx)
	}
	h := p.handles[o.As]
	if h == nil {
		return told(fmt.Errorf("no handle is called %q", o.As))
	}
	switch o.Op {
	case "state":
		return told(h.Err())
	case "extend":
		return told(h.Extend(ctx, o.TTL))
	case "release":
		return told(h.Release(ctx))
	case "watch":
		h.watch()
		return reply{}
	case "watched":
		select {
		case <-h.over:
		case <-ctx.Done():
			return told(fmt.Errorf("waited %v for the lock to be over", o.Within))
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		r := told(context.Cause(h.Context()))
		r.LastOK, r.Ended = h.lastOK, h.ended
		return r
	}
	return told(fmt.Errorf("no order is called %q", o.Op))
}

func (p *part) take(ctx context.Context, o order) reply {
	opts := []lock.Option{lock.TTL(o.TTL)}
	if o.NoRenew {
		opts = append(opts, lock.NoRenew())
	}
	take := p.locker.TryAcquire
	if o.Wait {
		take = p.locker.Acquire
	}
	h, err := take(ctx, o.Name, opts...)
	if err != nil {
		return told(err)
	}
	p.handles[o.As] = &watched{Handle: h, over: make(chan struct{})}
	token, _ := h.Token()
	return reply{Token: int64(token)}
}

// watch looks at the handle every millisecond, and notes before each look when
// that was: a holder that is stopped between the two claims nothing for the time
// after.
func (h *watched) watch() {
	go func() {
		defer close(h.over)
		ctx := h.Context()
		for {
			now := commonClock()
			if h.Err() != nil {
				break
			}
			h.mu.Lock()
			h.lastOK = now
			h.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		<-ctx.Done()
		h.mu.Lock()
		h.ended = commonClock()
		h.mu.Unlock()
	}()
}

// cycling takes and frees a lock again and again.
type cycling struct {
	quit chan struct{}
	done chan reply
}

func (p *part) cycle(o order) *cycling {
	c := &cycling{quit: make(chan struct{}), done: make(chan reply, 1)}
	go func() {
		n, err := 0, error(nil)
		for err == nil {
			select {
			case <-c.quit:
				c.done <- reply{Cycles: n}
				return
			default:
			}
			if err = p.once(o); err == nil {
				n++
			}
		}
		r := told(err)
		r.Cycles = n
		c.done <- r
	}()
	return c
}

func (p *part) once(o order) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	h, err := p.locker.Acquire(ctx, o.Name, lock.TTL(o.TTL))
	if err != nil {
		return err
	}
	if o.Dir != "" {
		g := dirGuard{o.Dir}
		if err := g.enter(); err != nil {
			return err
		}
		if err := g.leave(); err != nil {
			return err
		}
	}
	return h.Release(ctx)
}

func (c *cycling) end(ctx context.Context) reply {
	close(c.quit)
	select {
	case r := <-c.done:
		return r
	case <-ctx.Done():
		return told(errors.New("the cycles did not end in time"))
	}
}
