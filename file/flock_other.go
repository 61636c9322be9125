//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd && !windows

package file

import (
	"fmt"
	"os"
	"runtime"

	"github.com/interlock-go/lock"
)

const (
	noFollow = 0
	noBlock  = 0
)

// tryFlock refuses: the record locks that such a system has belong to a process,
// not to an open file, so two acquisitions of one process would share them.
func tryFlock(*os.File) (bool, error) {
	return false, fmt.Errorf("%w: no flock on %s", lock.ErrUnsupported, runtime.GOOS)
}

func unFlock(*os.File) error { return nil }

func syncParent(string) error { return nil }
