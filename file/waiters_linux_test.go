package file

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// left counts the waiters and the watches of b.
func left(b *backend) (waiters, watches int) {
	b.waiters.mu.Lock()
	defer b.waiters.mu.Unlock()
	return len(b.waiters.byID), len(b.waiters.byFile)
}

func TestWaiterIsToldOnceAndOnlyOfTheRelease(t *testing.T) {
	dir := t.TempDir()
	holder, b := newBackend(t, dir), newBackend(t, dir)
	g := mustTake(t, holder, request("a"))
	req, woken := waitingRequest("a")
	mustWait(t, b, req)
	// Tries that fail, of which events would come before that of the release.
	for range 20 {
		if _, err := holder.Acquire(t.Context(), request("a")); !errors.Is(err, lock.ErrHeld) {
			t.Fatal(err)
		}
	}
	other, _ := waitingRequest("a")
	mustRelease(t, mustWait(t, holder, other).Lease)
	mustRelease(t, g.Lease)
	within(t, 5*time.Second, "wake-up after the release", woken)
	if n := len(woken); n > 0 {
		t.Errorf("%d more wake-ups than the release's", n)
	}
	mustTake(t, b, req)
	if n, _ := left(b); n != 0 {
		t.Errorf("%d waiters are left after the grant", n)
	}
}

func TestWaiterIsToldOfRemoval(t *testing.T) {
	b := newBackend(t, t.TempDir())
	mustTake(t, b, request("a"))
	req, woken := waitingRequest("a")
	mustWait(t, b, req)
	if err := os.Remove(b.path("a")); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "wake-up after the removal", woken)
	mustTake(t, b, req)
}

// The news of a close comes before the flock is free, if the holder died.
func TestWaiterLooksAgainSoonAndThenSeldom(t *testing.T) {
	b := newBackend(t, t.TempDir())
	mustTake(t, b, request("a"))
	req, _ := waitingRequest("a")
	if w := mustWait(t, b, req); w.Retry > 100*time.Millisecond {
		t.Errorf("retry after %v at first", w.Retry)
	}
	ago := func(d time.Duration) {
		b.waiters.mu.Lock()
		defer b.waiters.mu.Unlock()
		b.waiters.byID[req.ID].told = time.Now().Add(-d)
	}
	ago(200 * time.Millisecond)
	if w := mustWait(t, b, req); w.Retry < 200*time.Millisecond || w.Retry > latest {
		t.Errorf("retry after %v, 0.2 s after the news", w.Retry)
	}
	ago(time.Minute)
	if w := mustWait(t, b, req); w.Retry != latest {
		t.Errorf("retry after %v, a minute after the news", w.Retry)
	}
}

func TestWaiterLeavesNothing(t *testing.T) {
	b := newBackend(t, t.TempDir())
	mustTake(t, b, request("a"))
	var places []lock.Lease
	for range 10 {
		req, _ := waitingRequest("a")
		places = append(places, mustWait(t, b, req).Lease)
	}
	if _, n := left(b); n != 1 {
		t.Errorf("%d watches for one file", n)
	}
	for _, p := range places {
		mustRelease(t, p)
	}
	if n, m := left(b); n != 0 || m != 0 {
		t.Errorf("%d waiters and %d watches are left", n, m)
	}
}
