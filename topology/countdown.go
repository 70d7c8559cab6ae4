package topology

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// CountDown is the Marks of systems that write the number of retries that
// remain on the message, and beside it the texts of the errors so far. The
// number, not the Policy, decides whether a message is retried.
//
// Header absent means Default. Programs write what their client prefers, so an
// integer of any type is read, and one in decimal digits, as text. A negative
// number, or anything that is not an integer, counts as 0: the message had a budget
// that cannot be read, so it is tried once more and then parked for a person to see,
// rather than retried for ever. A number that can be read is believed, however large
// it is: whoever publishes says how often a message is retried.
//
// Of the error texts the last 100 are kept. Nothing but the two headers is written,
// so times, hosts and the number of attempts are not known: History.Attempts is what
// the two headers add up to.
type CountDown struct {
	Header  string // name of the count, written as a signed 32-bit integer
	Errors  string // name of the array of error texts, oldest first
	Default int    // retries of a message without the header
}

// Validate reports names that are missing or somebody else's, and a negative default.
func (c CountDown) Validate() error {
	switch {
	case c.Header == "" || c.Errors == "" || c.Header == c.Errors:
		return fmt.Errorf("topology: CountDown needs two header names: Header %q, Errors %q", c.Header, c.Errors)
	case c.Default < 0 || c.Default > math.MaxInt32:
		return fmt.Errorf("topology: CountDown.Default %d: use 0 (no retries) to %d", c.Default, math.MaxInt32)
	}
	return errors.Join(validateHeader("CountDown.Header", c.Header), validateHeader("CountDown.Errors", c.Errors))
}

// Owns reports whether header is one of the two.
func (c CountDown) Owns(header string) bool { return header == c.Header || header == c.Errors }

func (c CountDown) left(headers Table) int {
	v, found := headers[c.Header]
	if !found {
		return c.Default
	}
	n, ok := amqpvalue.Integer(v)
	if text, isText := v.(string); !ok && isText {
		n, _ = strconv.ParseInt(text, 10, 64) // 0, or the nearest there is
	}
	return int(min(max(n, 0), math.MaxInt32))
}

// Read returns the retries left, the error texts, and the attempts they imply.
func (c CountDown) Read(d Delivery) History {
	h := History{RetriesLeft: c.left(d.Headers)}
	texts, _ := d.Headers[c.Errors].([]any)
	for i, t := range texts {
		if s, ok := t.(string); ok {
			h.Errors = append(h.Errors, AttemptError{Attempt: i + 1, Error: s})
		}
	}
	h.Attempts = max(len(texts), c.Default-h.RetriesLeft)
	return h
}

// Retry returns headers with one retry less and the error text appended.
func (c CountDown) Retry(headers Table, f Failure) Table {
	out := headers.with(c.Header, int32(max(0, c.left(headers)-1)))
	return c.append(out, f)
}

// Park returns headers with the error text appended. The count stays as it is.
func (c CountDown) Park(headers Table, f Failure) Table { return c.append(headers.Clone(), f) }

// maxTexts bounds the array of error texts, which anybody can have filled: AMQP
// clients refuse to read very long ones.
const maxTexts = 100

// append adds an error text; the last maxTexts are kept. Texts give way, oldest
// first, where they do not all fit into f.Room. It owns out, but not the array
// inside it.
func (c CountDown) append(out Table, f Failure) Table {
	before, _ := out[c.Errors].([]any)
	if over := len(before) + 1 - maxTexts; over > 0 {
		before = before[over:]
	}
	texts := append(before[:len(before):len(before)], any(cut(f.Error, maxErrorText)))
	for out[c.Errors] = texts; f.Room > 0 && out.WireSize() > f.Room && len(texts) > 1; out[c.Errors] = texts {
		texts = texts[1:]
	}
	if over := out.WireSize() - f.Room; f.Room > 0 && over > 0 {
		text, _ := texts[0].(string)
		out[c.Errors] = []any{cut(text, max(0, len(text)-over))}
	}
	return out
}
