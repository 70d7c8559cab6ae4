package amqpconn

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// packets is a network connection that records each write.
type packets struct {
	net.Conn
	written []string
	fails   bool
	closed  bool
}

func (p *packets) Write(b []byte) (int, error) {
	if p.fails {
		return 0, errors.New("broken pipe")
	}
	p.written = append(p.written, string(b))
	return len(b), nil
}

func (p *packets) Close() error {
	p.closed = true
	return nil
}

func TestSocketWritesBufferedDataInOrder(t *testing.T) {
	var p packets
	s := &socket{Conn: &p}
	write := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if n, err := s.Write([]byte(text)); n != len(text) || err != nil {
				t.Fatalf("Write: got %d, %v", n, err)
			}
		}
	}
	write("a")
	s.startBuffering()
	write("b", "c")
	s.flush()
	s.flush()
	write("d")
	s.startBuffering()
	large := strings.Repeat("f", maxBuffered)
	write("e", large, "g")
	s.flush()
	if want := []string{"a", "bc", "d", "e", large, "g"}; !slices.Equal(p.written, want) {
		t.Errorf("got %d writes, want %d", len(p.written), len(want))
	}
}

// Write reports buffered data as written. If the later write fails, the socket must close, so that no caller waits for
// an answer indefinitely.
func TestSocketClosesAfterFailedFlush(t *testing.T) {
	p := packets{fails: true}
	s := &socket{Conn: &p}
	s.startBuffering()
	if _, err := s.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	s.flush()
	if !p.closed || !s.failed.Load() {
		t.Errorf("got closed %t, failed %t, want true", p.closed, s.failed.Load())
	}
}

// A broker that reads slowly does not count as stuck.
func TestSocketReportsStuckWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		s := &socket{Conn: client}
		stuck := make(chan struct{}, 10)
		s.watchWrites(10*time.Second, func() time.Duration { stuck <- struct{}{}; return 10 * time.Second })
		written := make(chan error)
		write := func(bytes int) {
			_, err := s.Write(make([]byte, bytes))
			written <- err
		}
		go write(3 * maxBuffered)
		for range 3 {
			time.Sleep(9 * time.Second)
			if _, err := io.ReadFull(server, make([]byte, maxBuffered)); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // without a write
		if len(stuck) > 0 {
			t.Errorf("stuck writes while the peer reads: got %d, want 0", len(stuck))
		}
		go write(1)
		time.Sleep(25 * time.Second)
		client.Close()
		if err := <-written; err == nil || len(stuck) != 2 {
			t.Errorf("write: got error %v and stuck %d times, want an error and 2", err, len(stuck))
		}
	})
}
