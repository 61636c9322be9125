//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package file

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// The system calls are used directly, not through a package that wraps them: a
// child process can inherit a flock only through the descriptor, which the
// packages keep to themselves.

// noFollow refuses a symbolic link in the place of a lock's file.
const noFollow = syscall.O_NOFOLLOW

// noBlock keeps a pipe in that place from holding up who opens it.
const noBlock = syscall.O_NONBLOCK

// tryFlock takes the exclusive flock on f if it is free.
func tryFlock(f *os.File) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}

// unFlock frees the flock of the open file, whoever has copies of it.
func unFlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// syncParent has the directory entry of path on the disk when it returns.
func syncParent(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems cannot sync a directory, and need not.
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}
