package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
	"unsafe"

	"github.com/spf13/cobra"
	"golang.org/x/sys/windows"
)

// On Windows there is no guard. COMMAND and all processes that it starts are in a
// job object, which interlock alone has open: when interlock ends, in whatever
// way, the system ends all that is in it. It is weaker in two ways: COMMAND is
// not asked to end before it is ended, and an interlock that is suspended, while
// the machine is not, does not end it.

func addGuard(*cobra.Command, *int) {}

func interruptGroup() {}

func (j *job) run() ending {
	if err := joinJobObject(); err != nil {
		return ending{code: exitOS, err: fmt.Errorf("make a job object for COMMAND: %w", err)}
	}
	cmd := exec.Command(j.argv[0], j.argv[1:]...)
	cmd.Env = j.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return ending{code: exitNotExecutable, err: err}
	}
	j.report.note("started", "pid", cmd.Process.Pid)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	e := ending{}
	lost := j.handle.Context().Done()
	late := time.NewTimer(j.left())
	defer late.Stop()
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			switch {
			case errors.As(err, &exit):
				e.code = exit.ExitCode()
			case err != nil:
				e.code, e.err = exitOS, err
			}
			return e
		case <-j.renewed:
			late.Reset(j.left())
		case <-lost:
			lost = nil
			e.told = true
			_ = cmd.Process.Kill()
		case <-late.C:
			if j.handle.Deadline().IsZero() {
				break
			}
			e.told = true
			_ = cmd.Process.Kill()
		case <-j.signals: // COMMAND got it too
		}
	}
}

// left is the time until COMMAND must be ended.
func (j *job) left() time.Duration {
	deadline := j.handle.Deadline()
	if deadline.IsZero() {
		return time.Hour
	}
	return time.Until(deadline) - j.handle.TTL()/20
}

// joinJobObject puts this process, and so every process that it starts, into a
// job object that ends them when its last handle is closed.
func joinJobObject() error {
	object, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return err
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
			LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
		},
	}
	if _, err := windows.SetInformationJobObject(object, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		return err
	}
	return windows.AssignProcessToJobObject(object, windows.CurrentProcess())
}
