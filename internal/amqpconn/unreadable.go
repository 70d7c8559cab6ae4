package amqpconn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// amqp091-go closes the connection when it receives headers that it cannot decode. Therefore such headers are packed into
// HeaderUnreadable, from where they are unpacked when the message is published. With package amqpclient, received packs the
// same headers: otherwise a message that one client handles would be parked by the other one. Headers that exceed the maximum
// size of a frame are packed, too, because a copy with all of them cannot be published.
//
// For amqp091-go, the filter packs. It passes headers that exceed a frame as the beginning of the body, and HeaderUnreadable
// contains their size; newDelivery then packs them.

// HeaderUnreadable contains the headers of a message that amqp091-go cannot decode, as bytes in the encoding of AMQP. No other
// header has this name: it would be packed.
const HeaderUnreadable = "x-reprise-unreadable"

// Limits of amqp091-go for the depth of nested tables and arrays, and for the entries of one of them.
const (
	clientDepth   = 32
	clientEntries = 8192
)

// maxKept limits the readable headers of a message with too many headers, so that further headers can be added.
const maxKept = clientEntries / 2

// Unreadable returns an error if not all headers are readable.
func Unreadable(headers topology.Table) error {
	if headers[HeaderUnreadable] == nil {
		return nil
	}
	return fmt.Errorf("reprise: headers must be readable: they exceed a frame, or tables or arrays nest more than %d deep, or have more than %d entries", clientDepth, clientEntries)
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
	kept, packed := divide(all, len(all) >= clientEntries, math.MaxInt)
	if len(packed) == 0 {
		return table
	}
	kept = append(append(kept, unreadableName...), 'x')
	kept = binary.BigEndian.AppendUint32(kept, uint32(len(packed)))
	return closeTable(append(kept, packed...))
}

// divide returns a table, without its length, of the headers that the client can decode, and the encoded other headers. If
// the client cannot decode all headers together, the table contains only headers of brokers and strategies, in at most room
// bytes.
func divide(all []header, selected bool, room int) (table, others []byte) {
	table = []byte{0, 0, 0, 0}
	n := 0
	for _, h := range all {
		keep := h.readable && h.name != HeaderUnreadable && len(table)+len(h.whole) <= room
		if keep && selected && !amqpvalue.IsBrokerHeader(h.name) { // the marks of strategies begin with x-
			keep = len(h.name) > 1 && h.name[:2] == "x-" && n < maxKept
		}
		if keep {
			table = append(table, h.whole...)
			n++
		} else {
			others = append(others, h.whole...)
		}
	}
	return table, others
}

// isRouting reports whether a copy of a message must not have a header: it leads to other queues, or belongs to the delivery.
func isRouting(name string) bool {
	return name == "CC" || name == "BCC" || amqpvalue.IsBrokerHeader(name)
}

// unpack reverses pack, except for the headers that copies must not have.
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
			if packed, ok := splitTable(packed); ok {
				for _, p := range packed {
					if !isRouting(p.name) {
						out = append(out, p.whole...)
					}
				}
				continue
			}
		}
		out = append(out, h.whole...)
	}
	return closeTable(out)
}

// move returns a table of at most room bytes with the size of the headers that must move to the body, and these headers.
func move(table []byte, room int) (rest, moved []byte) {
	all, ok := splitTable(table[4:])
	rest, moved = divide(all, true, room-len(unreadableName)-9)
	if !ok {
		moved = table[4:]
	}
	rest = append(append(rest, unreadableName...), 'l')
	return closeTable(binary.BigEndian.AppendUint64(rest, uint64(len(moved)))), moved
}

// closeTable sets the length of a table.
func closeTable(table []byte) []byte {
	binary.BigEndian.PutUint32(table, uint32(len(table)-4))
	return table
}
