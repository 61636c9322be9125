//go:build unix

package conformance

import (
	"os"
	"syscall"
)

// canSignal says whether processes can be stopped and continued.
const canSignal = true

func stopProcess(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
