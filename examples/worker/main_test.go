package main

import (
	"context"
	"log"
	"os"
)

func Example() {
	if err := demo(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
	// Output:
	// a: item 1
	// a: item 2
	// administrator: broke the lock: true
	// a: stopped: its entry at the store is gone
	// b: item 3
	// b: item 4
	// b: item 5
	// b: item 6
}
