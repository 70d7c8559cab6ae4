package reprise

import "testing"

// The keys of a connection are removed with the connection, so that memory does not grow indefinitely.
func TestWhatIsKnownLastsAsLongAsItsConnection(t *testing.T) {
	var o onConnection[string]
	o.note(1, "a")
	o.note(1, "b")
	o.forget("b")
	if !o.knows(1, "a") || o.knows(1, "b") || o.knows(2, "a") {
		t.Errorf("on the first connection: %v", o.seen)
	}
	o.note(2, "c")
	o.note(1, "d") // from a goroutine that still uses the old connection
	if !o.knows(2, "c") || o.knows(2, "a") || o.knows(2, "d") || o.knows(1, "d") || len(o.seen) != 1 {
		t.Errorf("on the second connection: %v", o.seen)
	}
}

// A connection may last for months, with a new name for each message.
func TestWhatIsKnownIsBounded(t *testing.T) {
	var o onConnection[int]
	for i := range 3 * mostKnown {
		o.note(1, i)
		if !o.knows(1, i) {
			t.Fatalf("%d is forgotten at once", i)
		}
	}
	if n := len(o.seen); n > mostKnown {
		t.Errorf("%d are known, of %d that there may be", n, mostKnown)
	}
}
