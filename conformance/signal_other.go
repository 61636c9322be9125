//go:build !unix

package conformance

import (
	"errors"
	"os"
)

// canSignal says whether processes can be stopped and continued.
const canSignal = false

func stopProcess(*os.Process) error { return errors.ErrUnsupported }

func continueProcess(*os.Process) error { return errors.ErrUnsupported }
