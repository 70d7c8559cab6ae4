package topology

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// CountDown implements Marks for systems that write the number of remaining retries and the error texts on the message.
// This number replaces Policy.MaxAttempts as the limit of the retries.
//
// A message without this number has Default retries. CountDown reads integers of any type and strings of decimal digits,
// because programs write the type that their client prefers. Negative numbers and all other values count as 0, so the
// worker processes a message with an unreadable limit once and, if the attempt fails, parks the message instead of retrying
// it indefinitely. Numbers above 2147483647 count as 2147483647. There is no other upper limit, because the publisher sets
// the number of retries.
//
// CountDown keeps at most the last 100 error texts. CountDown writes only Header and Errors, so it does not record times,
// hosts or the number of attempts. It derives History.Attempts from these two headers and Default.
type CountDown struct {
	Header  string // header with the number of remaining retries, written as a signed 32-bit integer
	Errors  string // header with the array of error texts, oldest first
	Default int    // retries of a message without the header
}

// Validate reports missing or reserved header names, and an invalid default.
func (c CountDown) Validate() error {
	switch {
	case c.Header == "" || c.Errors == "" || c.Header == c.Errors:
		return fmt.Errorf("topology: CountDown.Header and CountDown.Errors must be different and not empty: got %q and %q", c.Header, c.Errors)
	case c.Default < 0 || c.Default > math.MaxInt32:
		return fmt.Errorf("topology: CountDown.Default must be between 0 and %d: got %d (0 means no retries)", math.MaxInt32, c.Default)
	}
	return errors.Join(validateHeader("CountDown.Header", c.Header), validateHeader("CountDown.Errors", c.Errors))
}

// Owns reports whether header is Header or Errors.
func (c CountDown) Owns(header string) bool { return header == c.Header || header == c.Errors }

func (c CountDown) retriesLeft(headers Table) int {
	v, found := headers[c.Header]
	if !found {
		return c.Default
	}
	n, ok := amqpvalue.Integer(v)
	if text, isText := v.(string); !ok && isText {
		n, _ = strconv.ParseInt(text, 10, 64) // 0, or the nearest int64
	}
	return int(min(max(n, 0), math.MaxInt32))
}

// Read returns the remaining retries, the error texts, and the number of attempts that they imply.
func (c CountDown) Read(d Delivery) History {
	h := History{RetriesLeft: c.retriesLeft(d.Headers)}
	texts, _ := d.Headers[c.Errors].([]any)
	for i, t := range texts {
		if s, ok := t.(string); ok {
			h.Errors = append(h.Errors, AttemptError{Attempt: i + 1, Error: s})
		}
	}
	h.Attempts = max(len(texts), c.Default-h.RetriesLeft)
	return h
}

// Retry returns headers with the number of retries decremented, and with the error text appended.
func (c CountDown) Retry(headers Table, f Failure) Table {
	if f.Uncounted {
		return headers.Clone()
	}
	out := headers.with(c.Header, int32(max(0, c.retriesLeft(headers)-1)))
	return c.append(out, f)
}

// Park returns headers with the error text appended. The number of retries does not change.
func (c CountDown) Park(headers Table, f Failure) Table { return c.append(headers.Clone(), f) }

// maxTexts limits the array of error texts. Any publisher can fill the array, and AMQP clients refuse
// to read very long arrays.
const maxTexts = 100

// append adds the error of f to out. It keeps the last maxTexts errors, or fewer if they do not fit into f.Room. It
// replaces the array in out, and does not modify the old array.
func (c CountDown) append(out Table, f Failure) Table {
	before, _ := out[c.Errors].([]any)
	if over := len(before) + 1 - maxTexts; over > 0 {
		before = before[over:]
	}
	texts := append(before[:len(before):len(before)], any(truncate(f.Error, maxErrorText)))
	for out[c.Errors] = texts; f.Room > 0 && out.WireSize() > f.Room && len(texts) > 1; out[c.Errors] = texts {
		texts = texts[1:]
	}
	if over := out.WireSize() - f.Room; f.Room > 0 && over > 0 {
		text, _ := texts[0].(string)
		out[c.Errors] = []any{truncate(text, max(0, len(text)-over))}
	}
	return out
}
