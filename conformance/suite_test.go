package conformance_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
)

// TestConformance runs the whole suite on the store that the mutants break.
func TestConformance(t *testing.T) { conformance.Run(t, broken("")) }
