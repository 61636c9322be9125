package testserver

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNotLinkedIn looks at all that the module's packages import without their
// tests: neither this package nor what only it needs may be among that.
func TestNotLinkedIn(t *testing.T) {
	const here = "github.com/interlock-go/lock/internal/testserver"
	var others []string
	for _, p := range goList(t, "github.com/interlock-go/lock/...") {
		if p != here {
			others = append(others, p)
		}
	}
	seen := goList(t, append([]string{"-deps"}, others...)...)
	if len(others) < 5 || len(seen) < 100 {
		t.Fatalf("go list found %d packages with %d imports: too few to believe", len(others), len(seen))
	}
	for _, p := range seen {
		for _, banned := range []string{here, "github.com/testcontainers/", "github.com/moby/", "github.com/docker/", "testing"} {
			if p == banned || (strings.HasSuffix(banned, "/") && strings.HasPrefix(p, banned)) {
				t.Errorf("%s is linked into the library, the conformance suite or the command", p)
			}
		}
	}
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	list.Dir = "../.."
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, out)
	}
	return strings.Fields(string(out))
}
