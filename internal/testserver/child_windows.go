package testserver

import (
	"errors"
	"os"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

var errNoPause = errors.New("Windows cannot pause a process: use the container way")

func pauseGroup(int) error  { return errNoPause }
func resumeGroup(int) error { return errNoPause }

func killGroup(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

func stopGroup(pid int) error { return killGroup(pid) }
