package amqpconn

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// The client closes the connection when it receives headers that it cannot decode. Therefore the filter packs such headers
// into HeaderUnreadable, from where it unpacks them when the client publishes the message. A message whose headers exceed the
// maximum size of a frame loses them instead, and cannot be published.

// HeaderUnreadable contains the headers of a message that the client cannot decode, as bytes in the encoding of AMQP. It is a
// string if these headers are lost, because they exceed the maximum size of a frame. Only the filter writes it: it also packs a
// header of this name from the broker.
const HeaderUnreadable = "x-reprise-unreadable"

// lostHeaders is the value of HeaderUnreadable if the headers are lost.
const lostHeaders = "larger than the maximum size of a frame"

// Limits of the client for the depth of nested tables and arrays, and for the entries of one of them.
const (
	clientDepth   = 32
	clientEntries = 8192
)

// maxKept limits the readable headers of a message with too many headers, so that further headers can be added.
const maxKept = clientEntries / 2

// Unreadable returns an error if the client cannot decode all headers.
func Unreadable(headers topology.Table) error {
	switch v := headers[HeaderUnreadable].(type) {
	case nil:
		return nil
	case string:
		return fmt.Errorf("reprise: headers must be readable: they are %s", v)
	}
	return fmt.Errorf("reprise: headers must be readable: tables or arrays nest more than %d deep, or have more than %d entries", clientDepth, clientEntries)
}

// Lost reports whether the headers are lost, so that a copy of the message would be incomplete.
func Lost(headers topology.Table) bool {
	_, lost := headers[HeaderUnreadable].(string)
	return lost
}

// scan returns the size of an encoded value, including its type, and reports whether the client can decode it at the given
// depth. The size is 0 if the value is malformed. scan replaces the type L, which the client does not know, by l, which
// RabbitMQ does not distinguish from L.
func scan(b []byte, depth int) (size int, readable bool) {
	if len(b) == 0 {
		return 0, false
	}
	switch b[0] {
	case 'V':
		size = 1
	case 't', 'b', 'B':
		size = 2
	case 's', 'u':
		size = 3
	case 'I', 'i', 'f':
		size = 5
	case 'D':
		size = 6
	case 'L', 'l', 'd', 'T':
		size = 9
	case 'S', 'x', 'A', 'F':
		if len(b) < 5 {
			return 0, false
		}
		size = 5 + int(min(binary.BigEndian.Uint32(b[1:]), 1<<30))
	}
	if size == 0 || size > len(b) {
		return 0, false
	}
	switch b[0] {
	case 'L':
		b[0] = 'l'
	case 'A', 'F':
		if depth == clientDepth {
			return size, false
		}
		ok, readable := scanAll(b[5:size], b[0] == 'F', depth+1)
		if !ok {
			return 0, false
		}
		return size, readable
	}
	return size, true
}

// scanAll scans the entries of a table or an array. ok is false if an entry is malformed.
func scanAll(b []byte, named bool, depth int) (ok, readable bool) {
	n := 0
	for readable = true; len(b) > 0; n++ {
		if named {
			if len(b) < 1+int(b[0]) {
				return false, false
			}
			b = b[1+int(b[0]):]
		}
		size, r := scan(b, depth)
		if size == 0 {
			return false, false
		}
		b, readable = b[size:], readable && r
	}
	return true, readable && n <= clientEntries
}

// header is an encoded header.
type header struct {
	name     string
	value    []byte // includes the type
	whole    []byte // name and value
	readable bool
}

// splitTable returns the headers of an encoded table, or false if the table is malformed.
func splitTable(b []byte) (all []header, ok bool) {
	for len(b) > 0 {
		n := 1 + int(b[0])
		if len(b) < n {
			return nil, false
		}
		size, readable := scan(b[n:], 0)
		if size == 0 {
			return nil, false
		}
		all = append(all, header{string(b[1:n]), b[n : n+size], b[:n+size], readable})
		b = b[n+size:]
	}
	return all, true
}

var unreadableName = append([]byte{byte(len(HeaderUnreadable))}, HeaderUnreadable...)

// pack returns the received headers, with their length, in a form that the client can decode. It returns the headers
// themselves if the client can decode them, or if they are malformed.
func pack(table []byte) []byte {
	ok, readable := scanAll(table[4:], true, 0)
	if !ok || readable && !bytes.Contains(table, unreadableName) {
		return table
	}
	all, _ := splitTable(table[4:])
	many, kept := len(all) >= clientEntries, 0
	out, packed := []byte{0, 0, 0, 0}, []byte(nil)
	for _, h := range all {
		keep := h.readable && h.name != HeaderUnreadable
		if keep && many && !amqpvalue.IsBrokerHeader(h.name) { // the marks of strategies begin with x-
			keep = len(h.name) > 1 && h.name[:2] == "x-" && kept < maxKept
		}
		if keep {
			out = append(out, h.whole...)
			kept++
		} else {
			packed = append(packed, h.whole...)
		}
	}
	if len(packed) == 0 {
		return table
	}
	return closeTable(appendUnreadable(out, 'x', packed))
}

// unpack reverses pack.
func unpack(table []byte) []byte {
	if !bytes.Contains(table, unreadableName) {
		return table
	}
	all, ok := splitTable(table[4:])
	if !ok {
		return table
	}
	out := []byte{0, 0, 0, 0}
	for _, h := range all {
		if packed := h.value[min(5, len(h.value)):]; h.name == HeaderUnreadable && h.value[0] == 'x' {
			if ok, _ := scanAll(packed, true, 0); ok {
				out = append(out, packed...)
				continue
			}
		}
		out = append(out, h.whole...)
	}
	return closeTable(out)
}

// cut returns the headers that the broker has added, as far as they fit into room bytes, and the mark of lost headers.
func cut(table []byte, room int) []byte {
	all, _ := splitTable(table[4:])
	out := appendUnreadable([]byte{0, 0, 0, 0}, 'S', []byte(lostHeaders))
	for _, h := range all {
		if h.readable && amqpvalue.IsBrokerHeader(h.name) && len(out)+len(h.whole) <= room {
			out = append(out, h.whole...)
		}
	}
	return closeTable(out)
}

func appendUnreadable(dst []byte, kind byte, value []byte) []byte {
	dst = append(append(dst, unreadableName...), kind)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// closeTable sets the length of a table.
func closeTable(table []byte) []byte {
	binary.BigEndian.PutUint32(table, uint32(len(table)-4))
	return table
}
