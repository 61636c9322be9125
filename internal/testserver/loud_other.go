//go:build !linux

package testserver

import (
	"io"
	"os"
)

// pastGoCommand opens the terminal, or is nil if there is none.
func pastGoCommand() io.WriteCloser {
	w, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil {
		return nil
	}
	return w
}
