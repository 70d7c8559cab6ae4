package route

import (
	"math"
	"strconv"
	"time"
)

// DelayHeader is the header with the delay of a message, in milliseconds. After the delay, the broker negates the value,
// so that the message does not wait again in a later exchange.
const DelayHeader = "x-delay"

// Delay returns the time for which exchanges of the type [Delayed] delay a message, or 0. Like the plugin
// rabbitmq_delayed_message_exchange, it accepts integers, fractions and texts, and ignores a delay of 2^32 ms or more.
func Delay(headers Arguments) time.Duration {
	if headers == nil {
		return 0
	}
	value, _ := headers.Get(DelayHeader)
	ms := int64(0)
	switch v := value.(type) {
	case int8, int16, int32, int64, uint8, uint16, uint32:
		ms, _ = integer(v)
	case float32, float64:
		if f, _ := fraction(v); math.Abs(f) < 1<<53 { // false for NaN
			ms = int64(f)
		}
	default:
		digits, _ := text(v)
		ms, _ = strconv.ParseInt(digits, 10, 64)
	}
	if ms < 0 || ms > math.MaxUint32 {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
