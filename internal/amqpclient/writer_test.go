package amqpclient

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// slowSocket accepts one write at a time, when the test permits it.
type slowSocket struct {
	permits chan error
	writes  [][]byte
}

func (s *slowSocket) Write(p []byte) (int, error) {
	if err := <-s.permits; err != nil {
		return 0, err
	}
	s.writes = append(s.writes, slices.Clone(p))
	return len(p), nil
}

func text(s string) func([]byte) ([]byte, error) {
	return func(buf []byte) ([]byte, error) { return append(buf, s...), nil }
}

// While a write waits for the socket, the frames of all goroutines gather for one following write.
func TestWriterGathers(t *testing.T) {
	s := &slowSocket{permits: make(chan error)}
	w := newWriter(s)
	first := make(chan error)
	go func() { first <- w.append(true, text("first ")) }()
	for { // until the first write has begun
		w.mu.Lock()
		writing := w.writing
		w.mu.Unlock()
		if writing {
			break
		}
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if err := w.append(true, text(fmt.Sprint(i, " "))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(s.permits)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if len(s.writes) != 2 || string(s.writes[0]) != "first " || len(strings.Fields(string(s.writes[1]))) != 50 {
		t.Errorf("got writes %q, want the first one and one of 50 goroutines", s.writes)
	}
}

// Without flush, frames wait in the buffer until it is large, or until another caller writes.
func TestWriterBuffers(t *testing.T) {
	var dst bytes.Buffer
	w := newWriter(&dst)
	check := func(step string, want int) {
		t.Helper()
		if dst.Len() != want {
			t.Errorf("%s: got %d bytes written, want %d", step, dst.Len(), want)
		}
	}
	_ = w.append(false, text("ab"))
	check("small", 0)
	_ = w.append(true, text("c"))
	check("flushed by another frame", 3)
	_ = w.append(false, text(strings.Repeat("x", maxBuffered)))
	check("large", 3+maxBuffered)
	_ = w.append(false, text("d"))
	_ = w.flush()
	check("flush", 4+maxBuffered)
	failed := errors.New("cannot encode")
	if err := w.append(true, func([]byte) ([]byte, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	_ = w.append(true, text("e"))
	check("after an error of a frame", 5+maxBuffered)
}

// An error of the socket ends the caller that writes, the callers that wait, and all later ones.
func TestWriterFails(t *testing.T) {
	s := &slowSocket{permits: make(chan error)}
	w := newWriter(s)
	results := make(chan error)
	const callers = 4
	for range callers {
		go func() {
			var err error
			for range 3 {
				if err = w.append(true, text(strings.Repeat("x", maxBuffered))); err != nil {
					break
				}
			}
			results <- err
		}()
	}
	broken := errors.New("connection reset")
	s.permits <- nil
	s.permits <- broken
	for range callers {
		if err := <-results; !errors.Is(err, broken) {
			t.Errorf("got %v, want the error of the socket", err)
		}
	}
	if err := w.append(false, text("later")); !errors.Is(err, broken) {
		t.Errorf("later: got %v, want the error of the socket", err)
	}
}

// A caller whose frames may have been written does not get ErrClosed, after which the caller would write them again.
func TestWriterIsClosedWhileWriting(t *testing.T) {
	s := &slowSocket{permits: make(chan error)}
	w := newWriter(s)
	result := make(chan error)
	go func() { result <- w.append(true, text("complete")) }()
	for writing := false; !writing; {
		w.mu.Lock()
		writing = w.writing
		w.mu.Unlock()
	}
	w.close(ErrClosed)
	s.permits <- nil
	if err := <-result; err == nil || errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want another error than ErrClosed", err)
	}
	if err := w.append(true, text("later")); !errors.Is(err, ErrClosed) {
		t.Errorf("later: got %v, want ErrClosed", err)
	}
}
