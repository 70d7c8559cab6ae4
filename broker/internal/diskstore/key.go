package diskstore

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Key prefixes in the database. The comments describe the rest of the key and the value. Numbers in keys are
// big-endian, so that keys sort numerically.
const (
	prefixCount    = 'c' // queue, level: count
	prefixDocument = 'd' // name: value
	prefixMessage  = 'm' // queue, level, order: state and message
	prefixOpen     = 'o' // exists while the store is open
)

func keyOf(queue uint64, level uint8, order uint64) Key {
	return Key{Queue: queue, Level: level, Order: order}
}

func messageKey(k Key) []byte { return appendMessageKey(nil, k) }

func appendMessageKey(dst []byte, k Key) []byte {
	dst = append(dst, prefixMessage)
	dst = binary.BigEndian.AppendUint64(dst, k.Queue)
	dst = append(dst, k.Level)
	return binary.BigEndian.AppendUint64(dst, k.Order)
}

// maxOrder is higher than the order of any message.
const maxOrder = math.MaxUint64

func parseMessageKey(b []byte) (Key, error) {
	if len(b) != 1+8+1+8 || b[0] != prefixMessage {
		return Key{}, fmt.Errorf("message %x: %w", b, ErrDamaged)
	}
	return Key{
		Queue: binary.BigEndian.Uint64(b[1:]),
		Level: b[9],
		Order: binary.BigEndian.Uint64(b[10:]),
	}, nil
}

func queueKey(prefix byte, queue uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefix}, queue)
}

func documentKey(name string) []byte { return append([]byte{prefixDocument}, name...) }
