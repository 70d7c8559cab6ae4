package failed

import (
	"strconv"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// maxHeaderText is how long a header may be for Filter.Headers to find it.
const maxHeaderText = 256

// HeaderText returns the value of a header as Filter.Headers finds it: text as it
// is, numbers in decimal, true and false, times as RFC 3339 in UTC. Tables, arrays,
// bytes and void cannot be found, nor text of more than 256 bytes.
func HeaderText(v any) (text string, ok bool) {
	if n, isInteger := amqpvalue.Integer(v); isInteger {
		return strconv.FormatInt(n, 10), true
	}
	switch x := v.(type) {
	case string:
		return x, len(x) <= maxHeaderText
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
