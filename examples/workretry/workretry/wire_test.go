package workretry

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// methodFrame returns the frame of a method with n bytes of arguments.
func methodFrame(m method, n int) []byte {
	f := []byte{frameMethod, 0, 1}
	f = binary.BigEndian.AppendUint32(f, uint32(4+n))
	f = binary.BigEndian.AppendUint32(f, uint32(m))
	return append(append(f, make([]byte, n)...), 0xCE)
}

// dialed returns a wire, a connection over this wire, and the other end of the connection. The function arrived closes
// the connection and returns the bytes that have arrived at the other end.
func dialed(t *testing.T) (w *wire, c net.Conn, broker net.Conn, arrived func() []byte) {
	t.Helper()
	near, far := net.Pipe()
	w = newWire(func(context.Context, string, string) (net.Conn, error) { return near, nil })
	c, err := w.Dial(t.Context(), "tcp", "broker:5672")
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(far)
		all <- b
	}()
	return w, c, far, func() []byte {
		_ = c.Close()
		return <-all
	}
}

// The bytes before the frame of the fault arrive, regardless of the sizes of the client's writes. This frame and later
// frames do not arrive.
func TestWireCutsBeforeFrame(t *testing.T) {
	before := append([]byte("AMQP\x00\x00\x09\x01"), methodFrame(basicConsume, 11)...)
	before = append(before, methodFrame(basicReject, 9)...)
	stream := append(append(bytes.Clone(before), methodFrame(basicAck, 9)...), methodFrame(basicReject, 9)...)
	for size := 1; size <= len(stream); size++ {
		w, c, _, arrived := dialed(t)
		s := &fault{frame: frame{consuming, toBroker, basicAck}, injected: make(chan struct{})}
		w.set(s)
		for rest := stream; len(rest) > 0; {
			n := min(size, len(rest))
			if _, err := c.Write(rest[:n]); err != nil {
				break
			}
			rest = rest[n:]
		}
		select {
		case <-s.injected:
		default:
			t.Errorf("writes of %d bytes: the fault is still armed", size)
		}
		if got := arrived(); !bytes.Equal(got, before) {
			t.Errorf("writes of %d bytes: got %d bytes, want the %d bytes before the frame", size, len(got), len(before))
		}
	}
}

// Frames that do not match the fault arrive unchanged.
func TestWirePassesOtherFrames(t *testing.T) {
	stream := append([]byte("AMQP\x00\x00\x09\x01"), methodFrame(basicConsume, 11)...)
	stream = append(stream, methodFrame(basicPublish, 300)...)
	for size := 1; size <= len(stream); size++ {
		w, c, _, arrived := dialed(t)
		w.set(&fault{frame: frame{publishing, toBroker, basicPublish}, injected: make(chan struct{})})
		for rest := stream; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if _, err := c.Write(rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if got := arrived(); !bytes.Equal(got, stream) {
			t.Errorf("writes of %d bytes: got %d bytes, want all %d bytes unchanged", size, len(got), len(stream))
		}
	}
}

// Dial fails after kill.
func TestWireRefusesConnectionsAfterKill(t *testing.T) {
	w, c, _, arrived := dialed(t)
	w.set(&fault{frame: frame{publishing, toBroker, confirmSelect}, kills: true, injected: make(chan struct{})})
	if _, err := c.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(methodFrame(confirmSelect, 1)); err == nil {
		t.Error("frame sent after kill")
	}
	<-w.died
	if _, err := w.Dial(t.Context(), "tcp", "broker:5672"); err == nil {
		t.Error("Dial succeeded after kill")
	}
	arrived()
}

// A fault can also apply to a frame from the broker. Data that is not AMQP leads to an error.
func TestWireCutsBrokerFrames(t *testing.T) {
	for _, tc := range []struct {
		name string
		sent []byte
		want []byte
	}{
		{"a confirm", append(methodFrame(basicQosOk, 0), methodFrame(basicAck, 9)...), methodFrame(basicQosOk, 0)},
		{"TLS", []byte("\x15\x03\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff"), nil},
	} {
		near, far := net.Pipe()
		w := newWire(func(context.Context, string, string) (net.Conn, error) { return near, nil })
		c, err := w.Dial(t.Context(), "tcp", "broker:5672")
		if err != nil {
			t.Fatal(err)
		}
		w.set(&fault{frame: frame{unknown, toClient, basicAck}, injected: make(chan struct{})})
		sending := make(chan struct{})
		go func() {
			defer close(sending)
			_, _ = far.Write(tc.sent)
			_ = far.Close()
		}()
		got, err := io.ReadAll(c)
		if err == nil || !bytes.Equal(got, tc.want) {
			t.Errorf("%s: got %q, %v, want %q and an error", tc.name, got, err, tc.want)
		}
		_ = c.Close()
		<-sending
	}
}
