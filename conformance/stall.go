package conformance

import (
	"errors"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// stallMeter notes when this process did not run for a while. A lock with a
// short TTL is rightly lost then, which says nothing of the backend.
type stallMeter struct {
	mu     sync.Mutex
	stalls []stall
	quit   chan struct{}
}

type stall struct {
	end  time.Time
	long time.Duration
}

// stallLeast is the shortest stall that excuses a loss: the shortest TTL in the
// checks that hold on to their locks has about twice as much to spare.
const stallLeast = 100 * time.Millisecond

func (m *stallMeter) start() {
	m.quit = make(chan struct{})
	go func() {
		const tick = 10 * time.Millisecond
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-ticker.C:
			case <-m.quit:
				return
			}
			now := time.Now()
			if long := now.Sub(last); long >= stallLeast {
				m.mu.Lock()
				m.stalls = append(m.stalls, stall{now, long})
				m.mu.Unlock()
			}
			last = now
		}
	}()
}

func (m *stallMeter) stop() { close(m.quit) }

// since is the longest stall that ended after the given time.
func (m *stallMeter) since(began time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var longest time.Duration
	for _, s := range m.stalls {
		if s.end.After(began) {
			longest = max(longest, s.long)
		}
	}
	return longest
}

// excused reports whether a check failed because its lock ran out while the
// machine stood still.
func (m *stallMeter) excused(err error, began time.Time) bool {
	var lost *lock.LostError
	return errors.As(err, &lost) && lost.Cause == lock.CauseExpired && m.since(began) > 0
}
