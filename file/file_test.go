package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

func newBackend(t *testing.T, dir string) *backend {
	t.Helper()
	b, err := NewBackend(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b.(*backend)
}

var requests atomic.Int64

func request(name string) lock.Request {
	return lock.Request{
		Name: name, ID: fmt.Sprint("request-", requests.Add(1)), TTL: time.Second, Owner: "test:1",
		Lost: func(lock.LossCause, error) {},
	}
}

func mustTake(t *testing.T, b *backend, req lock.Request) lock.Grant {
	t.Helper()
	g, err := b.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("acquire %q: %v", req.Name, err)
	}
	t.Cleanup(func() { _ = g.Lease.Release(context.Background()) })
	return g
}

func mustRelease(t *testing.T, l lock.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// within fails the test if nothing comes through c in d.
func within[T any](t *testing.T, d time.Duration, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(d):
		t.Fatalf("no %s within %v", what, d)
		panic("unreachable")
	}
}

func TestExcludes(t *testing.T) {
	dir := t.TempDir()
	one, two := newBackend(t, dir), newBackend(t, dir)
	g := mustTake(t, one, request("a"))
	for _, b := range []*backend{one, two} {
		_, err := b.Acquire(t.Context(), request("a"))
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Owner != "test:1" {
			t.Errorf("second acquire: %v, want a HeldError with the owner's label", err)
		}
	}
	mustTake(t, two, request("b"))
	mustRelease(t, g.Lease)
	again := mustTake(t, two, request("a"))
	if again.Token <= g.Token {
		t.Errorf("token %d after %d", again.Token, g.Token)
	}
	if err := g.Lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("second release: %v, want ErrLost", err)
	}
	if err := again.Lease.Renew(t.Context(), time.Second); err != nil {
		t.Errorf("the next holder's renewal: %v", err)
	}
}

func TestAcquireIsIdempotentInID(t *testing.T) {
	b := newBackend(t, t.TempDir())
	req := request("a")
	first, second := mustTake(t, b, req), mustTake(t, b, req)
	if first.Token != second.Token {
		t.Errorf("tokens %d and %d for one request", first.Token, second.Token)
	}
	mustRelease(t, second.Lease)
	mustTake(t, b, request("a"))
}

func TestFileNameAndMode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	b := newBackend(t, dir)
	mustTake(t, b, request("sku:42"))
	// printf sku:42 | sha256sum
	info, err := os.Stat(filepath.Join(dir, "a393fcf856bca39befd8c0841a20b6b6f0b8738de07acb295784c0d82a97ebb1.lock"))
	if err != nil {
		t.Fatal(err)
	}
	dirInfo, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && (info.Mode().Perm() != 0o600 || dirInfo.Mode().Perm() != 0o700) {
		t.Errorf("modes are %v and, of the directory, %v", info.Mode(), dirInfo.Mode())
	}
}

func TestRemovedFileIsALoss(t *testing.T) {
	b := newBackend(t, t.TempDir())
	for _, how := range []string{"removed", "replaced"} {
		t.Run(how, func(t *testing.T) {
			g := mustTake(t, b, request(how))
			if err := g.Lease.Renew(t.Context(), time.Second); err != nil {
				t.Fatalf("renewal: %v", err)
			}
			if err := os.Remove(b.path(how)); err != nil {
				t.Fatal(err)
			}
			rival := lock.Grant{}
			if how == "replaced" {
				rival = mustTake(t, b, request(how))
				if rival.Token <= g.Token {
					t.Errorf("token %d after %d", rival.Token, g.Token)
				}
			}
			if err := g.Lease.Renew(t.Context(), time.Second); !errors.Is(err, lock.ErrLost) {
				t.Errorf("renewal: %v, want ErrLost", err)
			}
			if err := g.Lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("release: %v, want ErrLost", err)
			}
			if how == "replaced" {
				if err := rival.Lease.Renew(t.Context(), time.Second); err != nil {
					t.Errorf("the rival's renewal: %v", err)
				}
			}
		})
	}
}

// The flock of a file that was removed between open and flock is no lock.
func TestFlockOfARemovedFileIsNotTaken(t *testing.T) {
	b := newBackend(t, t.TempDir())
	path := b.path("a")
	for _, replaced := range []bool{false, true} {
		f, err := b.open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if replaced {
			mustTake(t, b, request("a"))
		}
		l := &lease{backend: b, name: "a", path: path, flocked: f}
		if err := l.take("late"); !errors.Is(err, errRemoved) {
			t.Errorf("replaced %v: %v, want errRemoved", replaced, err)
		}
		l.close()
	}
}

func TestDirectoryRemovedWhileOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	b := newBackend(t, dir)
	mustRelease(t, mustTake(t, b, request("a")).Lease)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	mustTake(t, b, request("a"))
}

func TestSymbolicLinkIsRefused(t *testing.T) {
	if noFollow == 0 {
		t.Skip("no O_NOFOLLOW on " + runtime.GOOS)
	}
	b := newBackend(t, t.TempDir())
	target := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(target, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, b.path("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Acquire(t.Context(), request("a")); err == nil {
		t.Error("a lock on a symbolic link was granted")
	}
}

func TestCorruptFileIsAnErrorAndFreesTheFlock(t *testing.T) {
	b := newBackend(t, t.TempDir())
	if err := os.WriteFile(b.path("a"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second would be told that it is held if the first kept the flock
		g, err := b.Acquire(t.Context(), request("a"))
		if !errors.Is(err, errCorrupt) || g.Lease != nil {
			t.Fatalf("acquire: %v with lease %v, want errCorrupt alone", err, g.Lease)
		}
		if !strings.Contains(err.Error(), b.path("a")) {
			t.Errorf("%v does not name the file", err)
		}
	}
}

// waitingRequest is a request that waits, and the channel through which it is woken.
func waitingRequest(name string) (lock.Request, <-chan time.Duration) {
	woken := make(chan time.Duration, 100)
	req := request(name)
	req.Wait = true
	req.Wake = func(after time.Duration) { woken <- after }
	return req, woken
}

func mustWait(t *testing.T, b *backend, req lock.Request) lock.Grant {
	t.Helper()
	g, err := b.Acquire(t.Context(), req)
	if !errors.Is(err, lock.ErrHeld) || g.Lease == nil || g.Retry <= 0 {
		t.Fatalf("acquire %q: %v, lease %v, retry after %v; want ErrHeld, a place among the waiters and a time", req.Name, err, g.Lease, g.Retry)
	}
	return g
}

const waitsAreTold = runtime.GOOS == "linux"

func TestWaiterWithoutInotifyPolls(t *testing.T) {
	b := newBackend(t, t.TempDir())
	mustTake(t, b, request("a"))
	if err := b.waiters.close(); err != nil {
		t.Fatal(err)
	}
	req, _ := waitingRequest("a")
	w := mustWait(t, b, req)
	if w.Retry != pollInterval {
		t.Errorf("retry after %v, want %v", w.Retry, pollInterval)
	}
	mustRelease(t, w.Lease)
}

func TestDirectoryMustBeAbsolute(t *testing.T) {
	_, err := NewBackend(t.Context(), Options{Dir: "locks"})
	if !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

func TestDirectoryThatIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewBackend(t.Context(), Options{Dir: path}); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

func TestURL(t *testing.T) {
	dir := filepath.ToSlash(t.TempDir())
	good := []struct{ url, dir string }{
		{"file://" + rooted(dir), dir},
		{"file://" + rooted(dir) + "/a%20b/", dir + "/a b"},
	}
	for _, test := range good {
		b, err := lock.OpenBackend(t.Context(), test.url)
		if err != nil {
			t.Errorf("%s: %v", test.url, err)
			continue
		}
		if got := b.(*backend).dir; got != filepath.FromSlash(test.dir) {
			t.Errorf("%s: directory %s, want %s", test.url, got, test.dir)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	bad := []struct{ url, says string }{
		{"file://locks", "three slashes"},
		{"file://var/lib/locks", "three slashes"},
		{"file://me@h/locks", "user"},
		{"file://" + rooted(dir) + "?tll=5s", "tll"},
		{"file://" + rooted(dir) + "?network=allow", "network"},
		{"file://" + rooted(dir) + "/a%00b", "zero byte"},
	}
	for _, test := range bad {
		_, err := lock.OpenBackend(t.Context(), test.url)
		if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v; want ErrInvalid that says %q", test.url, err, test.says)
		}
	}
}

// rooted puts the slash before a Windows path that a URL needs.
func rooted(path string) string { return "/" + strings.TrimPrefix(path, "/") }

func TestDefaultDirectory(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	got, err := defaultDir()
	if err != nil {
		t.Fatal(err)
	}
	want := "/state/interlock"
	if os.Geteuid() == 0 {
		want = "/var/lib/interlock" // whatever the environment says
	}
	if runtime.GOOS == "linux" && got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !filepath.IsAbs(got) {
		t.Errorf("%s is not absolute", got)
	}
}
