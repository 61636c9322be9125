// Command inventory sells the stock of one article from several processes at
// once: first without a lock, then under one. Each worker reads how much is
// left, thinks for a moment and writes one less. Without a lock two of them read
// the same number, so an update is lost and more is sold than there was.
//
//	go run ./inventory
//	LOCK_URL=redis://localhost:6379 go run ./inventory
//
// The locks are where LOCK_URL says; without it they are files, and no server is
// needed. The program exits with 1 if an update was lost under the lock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/all" // every URL scheme
)

const sku = "sku:42"

func main() {
	log.SetFlags(0)
	log.SetPrefix("inventory: ")
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if os.Getenv(workerEnv) != "" {
		return serveWorker(ctx, os.Stdin, os.Stdout)
	}
	var (
		workers = flag.Int("workers", 4, "how many sell at once")
		orders  = flag.Int("orders", 50, "how many each of them wants to sell")
		stock   = flag.Int("stock", 100, "how many there are")
		think   = flag.Duration("think", 2*time.Millisecond, "the time between reading and writing")
	)
	flag.Parse()
	if flag.NArg() > 0 || *workers < 1 || *orders < 1 || *stock < 1 || *think < 0 {
		return errors.New("numbers must be positive, and nothing may follow the flags (see -help)")
	}
	return demo(ctx, os.Stdout, os.Getenv("LOCK_URL"), *workers, *stock, job{Orders: *orders, Think: *think})
}

var errLostUpdate = errors.New("updates were lost under the lock")

// demo sells the stock twice, without a lock and with one, and prints what came
// of it.
func demo(ctx context.Context, out io.Writer, url string, workers, stock int, j job) error {
	dir, err := os.MkdirTemp("", "inventory")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if url == "" {
		url = fileURL(filepath.Join(dir, "locks"))
	}
	parsed, err := lock.ParseURL(url)
	if err != nil {
		return err
	}
	start, kind := startProcess, "processes"
	if parsed.Scheme == "memory" { // which no other process sees
		start, kind = startGoroutine, "goroutines"
	}
	// So that a mistake in the URL is told once, and not by each worker.
	locker, err := lock.Open(ctx, url)
	if err != nil {
		return err
	}
	if err := locker.Close(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d of %s in stock; %d worker %s want to sell %d each; locks on %s\n\n",
		stock, sku, workers, kind, j.Orders, parsed.Scheme)

	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tsold\tleft\tupdates lost\toversold\tlongest wait\ttook\t")
	without, err := sell(ctx, start, workers, stock, filepath.Join(dir, "without"), j)
	if err != nil {
		return err
	}
	without.print(table, "without a lock")
	j.URL = url
	with, err := sell(ctx, start, workers, stock, filepath.Join(dir, "with"), j)
	if err != nil {
		return err
	}
	with.print(table, "under the lock")
	if err := table.Flush(); err != nil {
		return err
	}
	if with.lost() != 0 || with.oversold() > 0 {
		return fmt.Errorf("%w: %d", errLostUpdate, with.lost())
	}
	fmt.Fprintf(out, "\nUnder the lock, stock and sales agree. Without it, %d sales left no trace in the stock.\n", without.lost())
	return nil
}

// outcome is what came of one sale.
type outcome struct {
	result
	stock, left int
	took        time.Duration
}

// lost counts the sales that the stock does not show.
func (o outcome) lost() int { return o.Sold - (o.stock - o.left) }

func (o outcome) oversold() int { return max(0, o.Sold-o.stock) }

func (o outcome) print(w io.Writer, title string) {
	wait := "-"
	if o.LongestWait > 0 {
		wait = o.LongestWait.Round(100 * time.Microsecond).String()
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t\n",
		title, o.Sold, o.left, o.lost(), o.oversold(), wait, o.took.Round(time.Millisecond))
}

// sell has the workers sell the stock, which is in a file.
func sell(ctx context.Context, start starter, workers, stock int, path string, j job) (outcome, error) {
	j.Stock = shelf(path)
	if err := j.Stock.write(stock); err != nil {
		return outcome{}, err
	}
	o := outcome{stock: stock}
	began, results, err := start(ctx, workers, j)
	o.took = time.Since(began)
	if err != nil {
		return o, err
	}
	for _, r := range results {
		o.Sold += r.Sold
		o.LongestWait = max(o.LongestWait, r.LongestWait)
	}
	o.left, err = j.Stock.read()
	return o, err
}

// fileURL is the URL of the file backend for a directory.
func fileURL(dir string) string {
	dir = filepath.ToSlash(dir)
	if !strings.HasPrefix(dir, "/") { // C:/…
		dir = "/" + dir
	}
	var b strings.Builder
	for _, c := range []byte(dir) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("%?#@", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return "file://" + b.String()
}
