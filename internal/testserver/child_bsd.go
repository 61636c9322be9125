//go:build unix && !linux

package testserver

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// childrenOf lists the processes whose parent is pid.
func childrenOf(pid int) ([]int, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var young []int
	for line := range strings.Lines(string(out)) {
		var p, parent int
		if _, err := fmt.Sscan(line, &p, &parent); err == nil && parent == pid {
			young = append(young, p)
		}
	}
	return young, nil
}
