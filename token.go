package lock

// Token is a fencing token.
type Token int64
