package testserver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// ownGroup sets a child apart from the terminal's signals, and makes the kernel
// kill it when the test's process ends.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// childrenOf lists the processes whose parent is pid.
func childrenOf(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var young []int
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// "pid (name) state ppid": the name may have any byte.
		_, rest, ok := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
		var state byte
		var parent int
		if _, err := fmt.Sscanf(string(rest), "%c %d", &state, &parent); !ok || err != nil || parent != pid {
			continue
		}
		p, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		young = append(young, p)
	}
	return young, nil
}
