package file

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/interlock-go/lock"
)

func TestFileSystemInMemoryIsVolatile(t *testing.T) {
	var s unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &s); err != nil || s.Type != unix.TMPFS_MAGIC {
		t.Skipf("no tmpfs at /dev/shm (%v)", err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "interlock-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if got := newBackend(t, dir).Guarantees().Fencing; got != lock.FencingVolatile {
		t.Errorf("fencing %v in memory, want %v", got, lock.FencingVolatile)
	}
}

func TestNetworkFileSystemsAreRefused(t *testing.T) {
	for magic, kind := range kinds {
		b, err := on(kind, "/mnt/locks")
		switch {
		case kind.remote && (!errors.Is(err, lock.ErrUnsupported) || b != nil):
			t.Errorf("%s (%#x): %v, want ErrUnsupported", kind.name, magic, err)
		case !kind.remote && err != nil:
			t.Errorf("%s (%#x): %v", kind.name, magic, err)
		}
	}
	if b, err := on(kinds[unix.EXT4_SUPER_MAGIC], "/mnt/locks"); err != nil || b.fencing != lock.FencingDurable {
		t.Errorf("ext4: %v, %v", b, err)
	}
	for _, magic := range []uint32{unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC} {
		if !kinds[magic].remote {
			t.Errorf("%#x is not known to be remote", magic)
		}
	}
	if _, err := NewBackend(context.Background(), Options{Dir: "/proc/interlock-test"}); err == nil {
		t.Error("a directory was made in /proc")
	}
}

func TestPipeInPlaceOfALockIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	l, err := New(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := &backend{dir: dir}
	if err := unix.Mkfifo(b.path("n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := l.TryAcquire(ctx, "n"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("TryAcquire: %v, want a word on what is there", err)
	}
}
