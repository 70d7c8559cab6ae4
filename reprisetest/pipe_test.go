package reprisetest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

func TestPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pipe(memoryAddr(1), memoryAddr(0))
		if client.RemoteAddr() != server.LocalAddr() || client.LocalAddr() != server.RemoteAddr() || client.LocalAddr().String() != "memory:1" {
			t.Errorf("got addresses %v and %v, want equal addresses at both ends, memory:1 at the client",
				client.LocalAddr(), client.RemoteAddr())
		}
		// Writes succeed although no goroutine reads.
		for range 100 {
			if n, err := client.Write(bytes.Repeat([]byte("x"), 1000)); n != 1000 || err != nil {
				t.Fatalf("write: got %d bytes and error %v, want 1000", n, err)
			}
		}
		got := make([]byte, 100_000)
		if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, bytes.Repeat([]byte("x"), 100_000)) {
			t.Fatal(err)
		}
		// A deadline ends a read, unless the deadline is removed or postponed.
		began := time.Now()
		read := func() error {
			_, err := server.Read(got)
			return err
		}
		_ = server.SetDeadline(began.Add(time.Minute))
		go func() {
			time.Sleep(30 * time.Second)
			_ = server.SetReadDeadline(began.Add(2 * time.Minute))
		}()
		if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 2*time.Minute {
			t.Errorf("read: got %v after %s, want a deadline error after 2m", err, time.Since(began))
		}
		_ = server.SetReadDeadline(time.Now().Add(time.Minute))
		go func() {
			time.Sleep(30 * time.Second)
			_ = server.SetReadDeadline(time.Now().Add(time.Second))
		}()
		if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 2*time.Minute+31*time.Second {
			t.Errorf("read: got %v after %s, want a deadline error after 2m31s", err, time.Since(began))
		}
		_ = server.SetReadDeadline(time.Time{})
		// After Close, the other end can still read earlier data.
		_, _ = client.Write([]byte("last"))
		client.Close()
		if n, err := server.Read(got); string(got[:n]) != "last" || err != nil {
			t.Errorf("read after Close: got %q, %v, want \"last\"", got[:n], err)
		}
		if err := read(); err != io.EOF {
			t.Errorf("read after Close of the peer: got %v, want EOF", err)
		}
		if _, err := server.Write([]byte("x")); err != io.ErrClosedPipe {
			t.Errorf("write after Close of the peer: got %v, want ErrClosedPipe", err)
		}
		_, err1 := client.Read(got)
		_, err2 := client.Write(got)
		if !errors.Is(err1, net.ErrClosed) || !errors.Is(err2, net.ErrClosed) {
			t.Errorf("use of a closed end: got %v, %v, want ErrClosed", err1, err2)
		}
		server.Close()
	})
}

// Close ends a blocked read.
func TestPipeCloseEndsReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pipe(memoryAddr(1), memoryAddr(0))
		errs := make(chan error, 2)
		for _, end := range []net.Conn{client, server} {
			_ = end.SetReadDeadline(time.Now().Add(time.Hour))
			go func() {
				_, err := end.Read(make([]byte, 1))
				errs <- err
			}()
		}
		synctest.Wait()
		client.Close()
		one, other := <-errs, <-errs
		if !errors.Is(errors.Join(one, other), net.ErrClosed) || !errors.Is(errors.Join(one, other), io.EOF) {
			t.Errorf("concurrent reads: got %v and %v, want ErrClosed and EOF", one, other)
		}
		server.Close()
	})
}

// The scanner finds the same frames, however the stream is divided into reads.
func TestScannerFindsFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want [][]byte
		if rapid.Bool().Draw(t, "header") {
			want = append(want, amqpwire.ProtocolHeader[:])
		}
		for range rapid.IntRange(0, 10).Draw(t, "frames") {
			body := rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "body")
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				want = append(want, amqpwire.AppendHeartbeatFrame(nil))
			case 1:
				want = append(want, amqpwire.AppendHeaderFrame(nil, 7, 60, uint64(len(body)), append([]byte{0, 0}, body...)))
			case 2:
				f, err := amqpwire.AppendMethodFrame(nil, 7, &amqpwire.BasicPublish{RoutingKey: string(body)})
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, f)
			}
		}
		stream = bytes.Join(want, nil)
		garbage := rapid.SampledFrom([]string{"", "\x09garbage", "GET / HTTP/1.1", "\x01\x00\x00\xff\xff\xff\xff..."}).Draw(t, "garbage")
		stream = append(stream, garbage...)
		var s scanner
		var got [][]byte
		var passed []byte
		for len(stream) > 0 {
			n := rapid.IntRange(1, len(stream)).Draw(t, "piece")
			s.feed(stream[:n])
			stream = stream[n:]
			for f := s.next(); f != nil; f = s.next() {
				if !s.opaque {
					got = append(got, bytes.Clone(f))
				}
				passed = append(passed, f...)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("got %d frames, want %d", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("frame %d: got %q, want %q", i, got[i], want[i])
			}
		}
		if all := append(bytes.Join(want, nil), garbage...); !bytes.Equal(passed, all) {
			t.Fatalf("got data %q, want %q", passed, all)
		}
	})
}
