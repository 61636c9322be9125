package file_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/interlock-go/lock/conformance"
	_ "github.com/interlock-go/lock/file"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		Start: func(context.Context) (*conformance.Server, error) {
			dir := t.TempDir()
			return &conformance.Server{
				URL: "file://" + filepath.ToSlash(dir),
				Steal: func(_ context.Context, name string) error {
					sum := sha256.Sum256([]byte(name))
					return os.Remove(filepath.Join(dir, hex.EncodeToString(sum[:])+".lock"))
				},
			}, nil
		},
		// There is no server, and the files stay.
		Without: []string{"Network", "Pause", "Restart", "SmallestPool", "Login", "Residue"},
	})
}
