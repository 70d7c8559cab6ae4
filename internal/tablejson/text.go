package tablejson

import (
	"strconv"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// maxText is the maximum length of a searchable string in bytes.
const maxText = 256

// Text returns the searchable form of a value: strings unchanged, numbers in decimal, true and false, times as RFC 3339
// in UTC. ok is false for tables, arrays, bytes, decimals, void and strings of more than 256 bytes.
func Text(v any) (text string, ok bool) {
	if n, isInteger := amqpvalue.Integer(v); isInteger {
		return strconv.FormatInt(n, 10), true
	}
	switch x := v.(type) {
	case string:
		return x, len(x) <= maxText
	case bool:
		return strconv.FormatBool(x), true
	case float32:
		return strconv.FormatFloat(float64(x), 'g', -1, 32), true
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64), true
	case time.Time:
		return x.UTC().Format(time.RFC3339), true
	}
	return "", false
}
