package topology

import (
	"fmt"
	"math"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// CountUp implements Marks for systems that count attempts in one integer header, and limit retries by that number. The
// Policy of a worker uses the same number, including attempts that other programs have counted.
//
// Without the header, the count is 0. CountUp reads any integer type, because programs write the type that their client
// prefers. A negative number and any value that is not an integer count as 0. Such a message gets the full number of
// attempts again, but only once, because its copy has a valid number.
//
// CountUp writes a signed 32-bit integer, because other programs may read only this type. It also writes the headers of
// Trail, so that a parked message shows its causes. Programs that know only the count either copy or drop the other
// headers when they publish a message again. If they drop the other headers, the count continues, and the earlier errors
// are lost.
type CountUp struct {
	Header string // name of the header with the count
}

// Validate reports a missing name, an invalid name, and a name that Trail or the broker uses.
func (c CountUp) Validate() error {
	if c.Header == "" {
		return fmt.Errorf("topology: CountUp.Header must not be empty (example: %q)", "x-attempts")
	}
	return validateHeader("CountUp.Header", c.Header)
}

// Owns reports whether header is the count or a header of Trail.
func (c CountUp) Owns(header string) bool { return header == c.Header || Trail{}.Owns(header) }

// Read returns the history of Trail, with the number of attempts from the count.
func (c CountUp) Read(d Delivery) History {
	h := Trail{}.Read(d)
	h.Attempts = amqpvalue.Count(d.Headers[c.Header])
	return h
}

// Retry returns headers with the number of attempts, and with the failure added to the trail.
func (c CountUp) Retry(headers Table, f Failure) Table {
	return Trail{}.write(headers.with(c.Header, int32(min(max(f.Attempt, 0), math.MaxInt32))), f)
}

// Park returns the same headers as Retry. The count of a parked message includes its last attempt.
func (c CountUp) Park(headers Table, f Failure) Table { return c.Retry(headers, f) }
