//go:build unix

package main

import (
	"os"
	"syscall"
)

// endingSignals end a wait.
var endingSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// passedOnSignals are passed on to COMMAND's process group.
var passedOnSignals = append(endingSignals[:len(endingSignals):len(endingSignals)],
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
