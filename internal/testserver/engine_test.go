package testserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyLoopback(t *testing.T) {
	inside := filepath.Join(t.TempDir(), ".dockerenv")
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		envFile, override string
		ok                bool
	}{
		{inside, "", false},
		{inside, "10.0.0.1", false},
		{inside, "gateway", false},
		{inside, "127.0.0.1", true},
		{inside, "::1", true},
		{inside, "localhost", true},
		{inside + ".none", "", true},
	} {
		t.Setenv("TESTCONTAINERS_HOST_OVERRIDE", c.override)
		switch err := onlyLoopback(c.envFile); {
		case c.ok && err != nil:
			t.Errorf("%+v: refused: %v", c, err)
		case !c.ok && (!errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "set it to 127.0.0.1")):
			t.Errorf("%+v: not refused with the cure: %v", c, err)
		}
	}
}

func TestMissingImage(t *testing.T) {
	docker, err := engine()
	if err != nil {
		t.Logf("no engine to ask: %v", err)
		return
	}
	const image = "interlock.invalid/none:1"
	if err := needImage(t.Context(), docker, image); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "docker pull "+image) {
		t.Errorf("missing image: %v", err)
	}
}
