package amqpconn

import (
	"encoding/binary"
	"testing"

	"github.com/reprisemq/reprise/internal/amqpclient"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Headers that the client cannot decode do not break the connection at each delivery of their message.
func TestReceivedKeepsUnreadableHeaders(t *testing.T) {
	var value []byte
	for range 2 * amqpwire.MaxDepth {
		value = append(binary.BigEndian.AppendUint32([]byte{'A'}, uint32(len(value))), value...)
	}
	table := append(append([]byte{4}, "deep"...), value...)
	table = append(append(append(table, 2), "id"...), 'S', 0, 0, 0, 1, '7')
	properties := append(binary.BigEndian.AppendUint32([]byte{0x20, 0}, uint32(len(table))), table...)
	d, err := received(&amqpclient.Content{Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	if d.Headers["id"] != "7" || Unreadable(d.Headers) == nil {
		t.Errorf("got %v, want the header id, and the other one as unreadable", d.Headers)
	}
	if _, err := received(&amqpclient.Content{Properties: []byte{0x20, 0, 0, 0, 0, 9, 'x'}}); err == nil {
		t.Error("malformed properties: got no error")
	}
}
