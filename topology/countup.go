package topology

import (
	"fmt"
	"math"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// CountUp is the Marks of systems that count on the message how often it was put
// back, in one integer header, and decide by that number when it is enough. The
// Policy of a worker decides by it, too: what another program has counted is
// counted.
//
// Header absent means that no attempt was made. Any integer type is read;
// programs write what their client prefers. A negative number, or anything that
// is not an integer, counts as 0: such a message has its attempts before it, once,
// since the copy carries a number that can be read.
//
// The number is written as a signed 32-bit integer, which is what other programs
// expect who read one type alone. Beside it stands what a Trail writes, so that
// whoever finds the message parked sees why. Programs that know the one header
// pass the others on, or drop them with everything else when they put a message
// back: the count goes on, and the errors before that are not known.
type CountUp struct {
	Header string // name of the count
}

// Validate reports a name that no header can have, or that a Trail or the broker has
// taken.
func (c CountUp) Validate() error {
	if c.Header == "" {
		return fmt.Errorf("topology: CountUp.Header is empty: name the header that counts, such as %q", "x-attempts")
	}
	return validateHeader("CountUp.Header", c.Header)
}

// Owns reports whether header is the count, or one of Trail's.
func (c CountUp) Owns(header string) bool { return header == c.Header || Trail{}.Owns(header) }

// Read returns what a Trail kept; the number of attempts is the count's.
func (c CountUp) Read(d Delivery) History {
	h := Trail{}.Read(d)
	h.Attempts = amqpvalue.Count(d.Headers[c.Header])
	return h
}

// Retry returns headers with the attempt counted and the failure added to the
// trail.
func (c CountUp) Retry(headers Table, f Failure) Table {
	return Trail{}.write(headers.with(c.Header, int32(min(max(f.Attempt, 0), math.MaxInt32))), f)
}

// Park returns what Retry does: the count of a parked message is that of all its
// attempts.
func (c CountUp) Park(headers Table, f Failure) Table { return c.Retry(headers, f) }
