package benchmarks

import (
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the benchmarks measure into "+page)

const page = "../docs/speed.md"

// column is one thing that is measured of each contestant in each round.
type column struct {
	title  string
	format string
	of     string // if not "", the row to which this is a ratio, of the column before
	worst  bool   // the greatest of all rounds counts, not the median
}

// table is a benchmark's result. It stands in the page under its name.
type table struct {
	name    string // of the benchmark
	columns []column
	rows    []contestant
	samples map[string][][]float64 // by row, then column, then round
}

// tables are those of the page.
var tables = []*table{pairTable, callersTable, handOffTable, contendedTable, crowdTable, heldTable}

// add enters what a contestant did in a round; the values of ratios are left
// out.
func (t *table) add(row string, values ...float64) {
	if t.samples == nil {
		t.samples = make(map[string][][]float64)
	}
	if t.samples[row] == nil {
		t.samples[row] = make([][]float64, len(t.columns))
	}
	columns := t.samples[row]
	for i, c := range t.columns {
		if c.of == "" {
			columns[i] = append(columns[i], values[0])
			values = values[1:]
		}
	}
}

// skip enters that a contestant has no values in a round.
func (t *table) skip(row string) {
	none := make([]float64, len(t.columns))
	for i := range none {
		none[i] = math.NaN()
	}
	t.add(row, none...)
}

// value is what the table shows.
func (t *table) value(row string, i int) float64 {
	c := t.columns[i]
	if c.of != "" {
		var ratios []float64
		base := t.samples[c.of][i-1]
		for round, v := range t.samples[row][i-1] {
			ratios = append(ratios, v/base[round])
		}
		return median(ratios)
	}
	if c.worst {
		return slices.Max(t.samples[row][i])
	}
	return median(t.samples[row][i])
}

func median(v []float64) float64 {
	v = slices.DeleteFunc(slices.Sorted(slices.Values(v)), math.IsNaN)
	if len(v) == 0 {
		return math.NaN()
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// markdown is the table as it stands in the page.
func (t *table) markdown() string {
	var b strings.Builder
	b.WriteString("| |")
	for _, c := range t.columns {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(t.columns)) + "\n")
	for _, row := range t.rows {
		b.WriteString("| " + row.name + " |")
		for i, c := range t.columns {
			fmt.Fprintf(&b, " "+c.format+" |", t.value(row.name, i))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// report gives a benchmark's metrics, which are Interlock's row; TestMain prints
// the others.
func (t *table) report(b *testing.B) {
	b.ReportMetric(0, "ns/op") // of a whole round: says nothing
	for i, c := range t.columns {
		unit := strings.ReplaceAll(strings.ReplaceAll(c.title, "× ", "×"), " ", "-")
		b.ReportMetric(t.value(interlock.name, i), unit)
	}
}

// TestMain prints the tables that were measured, and with -update writes them
// into the page.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	for _, t := range tables {
		if t.samples == nil || code != 0 {
			continue
		}
		fmt.Printf("\n%s\n%s", t.name, t.markdown())
		if *update {
			if err := t.write(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	os.Exit(code)
}

func (t *table) write() error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	block := t.block()
	if !block.Match(text) {
		return fmt.Errorf("%s has no place for %s: write a line %q and one %q", page, t.name, t.begin(), end)
	}
	text = block.ReplaceAllLiteral(text, []byte(t.begin()+"\n"+t.markdown()+end))
	return os.WriteFile(page, text, 0o666) //nolint:gosec // a page of the documentation
}

const end = "<!-- measured: end -->"

func (t *table) begin() string { return "<!-- measured: " + t.name + " -->" }

func (t *table) block() *regexp.Regexp {
	return regexp.MustCompile(`(?s)` + regexp.QuoteMeta(t.begin()) + `.*?` + regexp.QuoteMeta(end))
}

// TestPage compares the page with the benchmarks that there are; the numbers
// are of the machine on which they were measured.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		block := string(table.block().Find(text))
		var heads, names []string
		for _, c := range table.columns {
			heads = append(heads, c.title)
		}
		for _, row := range table.rows {
			names = append(names, row.name)
		}
		var gotHeads, gotNames []string
		for line := range strings.Lines(block) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			switch first := strings.TrimSpace(cells[0]); {
			case !strings.HasPrefix(line, "|") || strings.HasPrefix(first, "---"):
			case first == "":
				for _, c := range cells[1:] {
					gotHeads = append(gotHeads, strings.TrimSpace(c))
				}
			default:
				gotNames = append(gotNames, first)
			}
		}
		if !slices.Equal(heads, gotHeads) || !slices.Equal(names, gotNames) {
			t.Errorf("%s, %s: columns %q, rows %q; the benchmark has %q and %q: run it with -update",
				page, table.name, gotHeads, gotNames, heads, names)
		}
	}
	if got := strings.Count(string(text), "<!-- measured: "); got != 2*len(tables) {
		t.Errorf("%s has %d markers, want two for each of the %d benchmarks", page, got, len(tables))
	}
}
