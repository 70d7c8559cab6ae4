package amqpconn

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/amqpclient"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// encodedNest returns an encoded array that nests n deep.
func encodedNest(n int) amqpwire.Encoded {
	value := []byte{'V'}
	for range n {
		value = append(binary.BigEndian.AppendUint32([]byte{'A'}, uint32(len(value))), value...)
	}
	return value
}

// reporter is a test or a case of rapid.
type reporter interface {
	Fatal(...any)
	Errorf(string, ...any)
}

// checkCopy reports the headers that a copy of the delivery does not have.
func checkCopy(t reporter, d Delivery, headers amqpwire.Table) {
	p := d.Message.properties(persistent)
	again, err := p.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		field, err := amqpwire.Table{h}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(again, field[4:]) {
			t.Errorf("the copy has no header %s", h.Name)
		}
	}
}

func encodedProperties(t reporter, headers amqpwire.Table) []byte {
	p := amqpwire.Properties{Flags: amqpwire.PropHeaders, Headers: headers}
	b, err := p.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Headers that a program cannot decode do not break the connection at each delivery of their message, and a copy has all of
// them.
func TestCopyKeepsUnreadableHeaders(t *testing.T) {
	many := make(amqpwire.Table, clientEntries+1)
	for i := range many {
		many[i] = amqpwire.Field{Name: "h" + strings.Repeat("i", i%200), Value: int64(i)}
	}
	for name, headers := range map[string]amqpwire.Table{
		"deep":              {{Name: "deep", Value: encodedNest(clientDepth + 1)}},
		"deeper than codec": {{Name: "deep", Value: encodedNest(2 * amqpwire.MaxDepth)}},
		"many in a table":   {{Name: "many", Value: many}},
		"large":             {{Name: "large", Value: strings.Repeat("x", maxFrame)}},
		"packed name":       {{Name: HeaderUnreadable, Value: []byte("forged")}},
	} {
		t.Run(name, func(t *testing.T) {
			headers = append(headers, amqpwire.Field{Name: "x-id", Value: "7"})
			d, err := received(&amqpclient.Content{Properties: encodedProperties(t, headers)}, maxFrame)
			if err != nil {
				t.Fatal(err)
			}
			if d.Headers["x-id"] != "7" || Unreadable(d.Headers) == nil {
				t.Errorf("got the headers %v, want x-id and %s", slices.Sorted(maps.Keys(d.Headers)), HeaderUnreadable)
			}
			checkCopy(t, d, headers)
		})
	}
}

func TestReceivedRefusesMalformedProperties(t *testing.T) {
	if _, err := received(&amqpclient.Content{Properties: []byte{0x20, 0, 0, 0, 0, 9, 'x'}}, maxFrame); err == nil {
		t.Error("got no error")
	}
}

// Both clients pack the same headers.
func TestReceivedPacksAsFilter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var headers amqpwire.Table
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			name := rapid.SampledFrom([]string{"a", "x-b", "CC", "x-death", HeaderUnreadable}).Draw(t, "name")
			var value any
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				value = encodedNest(rapid.IntRange(clientDepth-1, clientDepth+2).Draw(t, "depth"))
			case 1:
				value = make(amqpwire.Array, rapid.IntRange(clientEntries-1, clientEntries+1).Draw(t, "entries"))
			case 2:
				value = strings.Repeat("x", rapid.IntRange(0, 2*maxFrame).Draw(t, "size"))
			case 3:
				value = []byte("bytes")
			}
			headers = headers.Set(name, value)
		}
		properties := encodedProperties(t, headers)
		d, err := received(&amqpclient.Content{Properties: properties}, maxFrame)
		if err != nil {
			t.Fatal(err)
		}
		payload := append(make([]byte, contentHead), properties...)
		packed := needsPacking(bytes.Clone(payload)) || amqpwire.FrameOverhead+len(payload) > maxFrame
		if got := Unreadable(d.Headers) != nil; got != packed {
			t.Errorf("packed: got %v, want %v", got, packed)
		}
		if packed { // a packed header of these names does not return
			headers = slices.DeleteFunc(headers, func(f amqpwire.Field) bool { return isRouting(f.Name) })
		}
		checkCopy(t, d, headers)
	})
}
