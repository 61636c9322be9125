package file

// fileSystemKind is what matters here about a file system.
type fileSystemKind struct {
	name     string
	remote   bool // other hosts may use it too
	volatile bool // it is in memory: a restart of the host empties it
}
