package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// preamble declares what the pages' Go uses and does not show. A block of
// statements is compiled as the body of a function of a ctx.
const preamble = `package pages

import (
	"context"

	"github.com/interlock-go/lock"
)

var (
	locker lock.Locker
	client goredis.UniversalClient
	repo   interface{ Reserve(ctx context.Context, sku string, n int, token lock.Token) error }
	build  func(ctx context.Context) error
	work   func(ctx context.Context) error
)
`

// importsOf are the packages that the pages' Go may use without showing it.
var importsOf = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "os": "os", "time": "time", "testing": "testing", "slog": "log/slog",
	"lock": "github.com/interlock-go/lock", "memory": "github.com/interlock-go/lock/memory",
	"file": "github.com/interlock-go/lock/file", "conformance": "github.com/interlock-go/lock/conformance",
	"redislock": "github.com/interlock-go/lock/redis", "goredis": "github.com/redis/go-redis/v9",
}

// TestGoCompiles compiles the Go of all pages.
func TestGoCompiles(t *testing.T) {
	overlay := map[string]string{}
	dir := t.TempDir()
	add := func(source string) {
		file := fmt.Sprintf("block%d.go", len(overlay))
		if err := os.WriteFile(filepath.Join(dir, file), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		virtual, err := filepath.Abs(filepath.Join("pages", file))
		if err != nil {
			t.Fatal(err)
		}
		overlay[virtual] = filepath.Join(dir, file)
	}
	add(withImports(preamble))
	for _, page := range pages(t) {
		text := read(t, page)
		for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
			if text[m[2]:m[3]] != "go" {
				continue
			}
			line := 1 + strings.Count(text[:m[4]], "\n")
			add(wrap(t, page, line, text[m[4]:m[5]]))
		}
	}
	if len(overlay) < 4 {
		t.Fatalf("%d blocks of Go found: is the pattern for them wrong?", len(overlay)-1)
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", os.DevNull, "./pages").CombinedOutput()
	if err != nil {
		t.Errorf("the Go in the pages does not compile: %v\n%s", err, out)
	}
}

// wrap makes a file of a block: of declarations as they are, of statements with
// a function around them. Errors of the compiler show the page's lines.
func wrap(t *testing.T, page string, line int, block string) string {
	t.Helper()
	path, err := filepath.Abs(page)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("\n//line %s:%d\n", path, line)
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package pages\n"+block, 0); err == nil {
		if strings.HasPrefix(block, "import") {
			// Only that the packages exist.
			return "package pages\n" + regexp.MustCompile(`(?m)^(import |\t)(\w+ )?"`).ReplaceAllString(block, `${1}_ "`)
		}
		return withImports("package pages\n" + at + block)
	}
	if _, err := format.Source([]byte(block)); err != nil {
		t.Errorf("%s:%d: %v", page, line, err)
	}
	return withImports("package pages\n\nfunc _(ctx context.Context) error {\nvar err error\n_ = err\n{" + at + block + "\n}\nreturn err\n}\n")
}

// withImports adds the imports of what the source uses to its package clause.
func withImports(source string) string {
	clause, rest, _ := strings.Cut(source, "\n")
	var b bytes.Buffer
	b.WriteString(clause + "\n")
	for name, path := range importsOf {
		if regexp.MustCompile(`\b`+name+`\.[A-Z]`).MatchString(rest) && !strings.Contains(rest, "\t\""+path+"\"\n") {
			fmt.Fprintf(&b, "import %s %q\n", name, path)
		}
	}
	return b.String() + rest
}
