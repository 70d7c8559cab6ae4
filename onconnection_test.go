package reprise

import "testing"

// The keys of a connection are removed with the connection, so that memory does not grow indefinitely.
func TestOnConnectionForgetsKeysOfOldConnection(t *testing.T) {
	var o onConnection[string]
	o.note(1, "a")
	o.note(1, "b")
	o.forget("b")
	if !o.knows(1, "a") || o.knows(1, "b") || o.knows(2, "a") {
		t.Errorf("keys on the first connection: %v", o.seen)
	}
	o.note(2, "c")
	o.note(1, "d") // from a goroutine that still uses the old connection
	if !o.knows(2, "c") || o.knows(2, "a") || o.knows(2, "d") || o.knows(1, "d") || len(o.seen) != 1 {
		t.Errorf("keys on the second connection: %v", o.seen)
	}
}

// A connection may last for months, and each message may add a new key.
func TestOnConnectionLimitsKeys(t *testing.T) {
	var o onConnection[int]
	for i := range 3 * maxKnown {
		o.note(1, i)
		if !o.knows(1, i) {
			t.Fatalf("key %d was forgotten immediately", i)
		}
	}
	if n := len(o.seen); n > maxKnown {
		t.Errorf("number of keys: got %d, want at most %d", n, maxKnown)
	}
}
