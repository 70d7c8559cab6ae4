package history

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"math/bits"
	"time"

	"github.com/reprisemq/reprise/internal/protocol"
)

// Totals counts the events in a period.
type Totals struct {
	protocol.Counts                    // as announced by workers
	Arrived         uint64             // messages that failed in the period and were archived
	Took            protocol.Histogram // handling times
}

// Failures returns the number of failures: failed attempts that workers announced, or messages that arrived in the
// archive, whichever number is larger. A parked message of an announced worker is in both numbers, so their sum would
// count it twice.
func (t Totals) Failures() uint64 { return max(t.Failed, t.Arrived) }

// Add returns the sum.
func (t Totals) Add(other Totals) Totals {
	a, b := t.numbers(), other.numbers()
	for i := range a {
		a[i] += b[i]
	}
	return totalsOf(a)
}

// numbers contains the counts of Totals in the stored order. Add a new count at the end.
type numbers [6 + protocol.TookBuckets]uint64

func (t Totals) numbers() (n numbers) {
	n[0], n[1], n[2], n[3], n[4], n[5] = t.Succeeded, t.Failed, t.Retried, t.Parked, t.Arrived, t.Took.SumMS
	copy(n[6:], t.Took.Buckets[:])
	return n
}

func totalsOf(n numbers) (t Totals) {
	t.Succeeded, t.Failed, t.Retried, t.Parked, t.Arrived, t.Took.SumMS = n[0], n[1], n[2], n[3], n[4], n[5]
	copy(t.Took.Buckets[:], n[6:])
	return t
}

// since returns the difference between t and earlier totals of the same worker. It reports false if any number has
// decreased.
func (t Totals) since(earlier Totals) (Totals, bool) {
	a, b := t.numbers(), earlier.numbers()
	for i := range a {
		if a[i] < b[i] {
			return Totals{}, false
		}
		a[i] -= b[i]
	}
	return totalsOf(a), true
}

// maxTotal is the maximum of each number, so that no sum overflows.
const maxTotal = 1 << 48

// plausible reports whether all numbers are within bounds.
func (t Totals) plausible() bool {
	for _, n := range t.numbers() {
		if n > maxTotal {
			return false
		}
	}
	return true
}

// before returns the share of t in the first part of a period over which t is spread evenly. The parameters are the
// durations of this part and of the whole period. The rounded shares of consecutive parts add up to t.
func (t Totals) before(part, whole time.Duration) Totals {
	if part >= whole {
		return t
	}
	n := t.numbers()
	for i := range n {
		high, low := bits.Mul64(n[i], uint64(max(0, part)))
		n[i], _ = bits.Div64(high, low, uint64(whole)) // does not panic, because the result is at most n[i]
	}
	return totalsOf(n)
}

// encode returns the numbers as varints, without trailing zeros.
func (t Totals) encode() []byte {
	n := t.numbers()
	last := len(n)
	for last > 0 && n[last-1] == 0 {
		last--
	}
	b := make([]byte, 0, 2*last)
	for _, v := range n[:last] {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

var errDamaged = errors.New("row is damaged")

func decode(b []byte) (Totals, error) {
	var n numbers
	for i := 0; len(b) > 0; i++ {
		v, size := binary.Uvarint(b)
		if size <= 0 || i == len(n) {
			return Totals{}, errDamaged
		}
		n[i], b = v, b[size:]
	}
	return totalsOf(n), nil
}

// stored returns a Scanner that decodes totals into t.
func stored(t *Totals) sql.Scanner { return column{t} }

type column struct{ totals *Totals }

// Scan implements [sql.Scanner].
func (c column) Scan(stored any) (err error) {
	b, ok := stored.([]byte)
	if !ok && stored != nil { // some drivers return an empty value as NULL
		return errDamaged
	}
	*c.totals, err = decode(b)
	return err
}
