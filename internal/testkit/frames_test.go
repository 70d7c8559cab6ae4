package testkit

import (
	"encoding/binary"
	"slices"
	"testing"
)

const protocolHeader = "AMQP\x00\x00\x09\x01"

// frame returns a frame with a payload of n misleading end octets.
func frame(kind byte, n int) string {
	b := []byte{kind, 0, 1}
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	for range n + 1 {
		b = append(b, frameEnd)
	}
	return string(b)
}

// The scanner finds the same boundaries for every split of the stream.
func TestFrameScanner(t *testing.T) {
	const ack = "\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50\x00\x00\x00\x00\x00\x00\x00\x01\x00\xce"
	stream := protocolHeader + frame(1, 12) + frame(frameHeartbeat, 0) + frame(3, 0) + frame(1, 300) + ack + "\x03" + ack[1:]
	at := len(stream) - 2*len(ack)
	wantBegins := []int{8, 8 + 20 + 8, 8 + 20 + 8 + 8, at, at + len(ack)}
	wantEnds := []int{8 + 20, 8 + 20 + 8 + 8, at, at + len(ack), len(stream)}
	wantAcks := []int{at + 11} // a body that begins like an ack is not an ack
	for chunk := 1; chunk <= len(stream); chunk++ {
		var s frameScanner
		var begins, ends, acks []int
		for at := 0; at < len(stream); {
			end := min(at+chunk, len(stream))
			for at < end {
				if s.begins(stream[at]) {
					begins = append(begins, at)
				}
				n, ended := s.next([]byte(stream[at:end]))
				at += n
				if s.read && s.method == basicAck {
					acks = append(acks, at)
				}
				if ended {
					ends = append(ends, at)
				}
			}
		}
		if !slices.Equal(begins, wantBegins) || !slices.Equal(ends, wantEnds) || !slices.Equal(acks, wantAcks) {
			t.Errorf("chunks of %d bytes: frames begin at %v, want %v; end at %v, want %v; acks at %v, want %v",
				chunk, begins, wantBegins, ends, wantEnds, acks, wantAcks)
		}
	}
}

func TestFrameScannerIgnoresOtherProtocols(t *testing.T) {
	var s frameScanner
	data := []byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	data[3], data[4], data[5], data[6] = 0, 0, 0, 4
	for at := 0; at < len(data); {
		n, ended := s.next(data[at:])
		if ended {
			t.Fatalf("unexpected end of a frame at byte %d", at+n)
		}
		at += n
	}
	if s.begins(1) {
		t.Error("unexpected begin of a frame in data that is not AMQP")
	}
}
