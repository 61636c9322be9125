package main

import "os"

// endingSignals end a wait.
var endingSignals = []os.Signal{os.Interrupt}

// passedOnSignals are caught while COMMAND runs. It gets Ctrl-C from the console
// itself.
var passedOnSignals = endingSignals
