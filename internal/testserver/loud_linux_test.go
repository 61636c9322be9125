package testserver

import (
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// TestSkipIsSeen runs a test without its server as a person does: the package
// passes, and the line must be seen, once, though the go command hides what a
// passing package prints.
func TestSkipIsSeen(t *testing.T) {
	args := []string{"test", "-count=1", "-run", "^TestRedisLife$"}
	// With the same flags as this test everything but the last step is built.
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	run := exec.CommandContext(t.Context(), "go", append(args, ".")...)
	run.Env = append(os.Environ(), "INTERLOCK_SERVERS=env", "INTERLOCK_REDIS_ADDR=", "INTERLOCK_REQUIRE=")
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("go test: %v: %s", err, out)
	}
	if n := strings.Count(string(out), "NOT RUN: TestRedisLife needs redis"); n != 1 {
		t.Errorf("the line was seen %d times in %q", n, out)
	}
}
