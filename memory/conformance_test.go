package memory_test

import (
	"context"
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/memory"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		InProcess: true,
		Start: func(context.Context) (*conformance.Server, error) {
			return &conformance.Server{
				URL: "memory://conformance",
				Steal: func(_ context.Context, name string) error {
					memory.Named("conformance").Break(name)
					return nil
				},
				Residue: func(_ context.Context, name string) ([]string, error) {
					return memory.Residue(memory.Named("conformance"), name), nil
				},
			}, nil
		},
	})
}
