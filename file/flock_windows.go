package file

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

const (
	noFollow = 0
	noBlock  = 0
)

// lockedByte is the byte that is locked, far behind the record: a locked byte
// cannot be read by others, and they are to read the holder's label.
func lockedByte() *windows.Overlapped {
	return &windows.Overlapped{OffsetHigh: 1 << 30}
}

// tryFlock takes the exclusive lock on f if it is free.
func tryFlock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, lockedByte())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// unFlock frees the lock of the open file.
func unFlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockedByte())
}

// syncParent does nothing: a directory cannot be flushed on Windows.
func syncParent(string) error { return nil }
