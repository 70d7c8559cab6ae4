package flags

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
)

// Size is a number of bytes on the command line: 500000000, 256MiB, 2GiB.
type Size int64

// units are the permitted suffixes of a size.
var units = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"", 1}}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(text []byte) error {
	for _, u := range units {
		digits, ok := strings.CutSuffix(string(text), u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || n > (1<<62)/u.bytes {
			break
		}
		*s = Size(n * u.bytes)
		return nil
	}
	return fmt.Errorf("%s is not a size (examples: 256MiB, 2GiB, or a number of bytes)", brief.Quoted(string(text)))
}

// String returns the size in the notation of the command line.
func (s Size) String() string {
	for _, u := range slices.Backward(units[:len(units)-1]) {
		if int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Moment is a time on the command line: a date, or a duration before now.
type Moment time.Time

// Time returns the moment, or the zero time if the flag is missing.
func (m Moment) Time() time.Time { return time.Time(m) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *Moment) UnmarshalText(text []byte) error {
	t, err := params.ReadTime(string(text), time.Now(), time.Local)
	*m = Moment(t)
	return err
}

// PerSecond is the value of a flag such as 10/s, 100/m or 5000/h. 0 means no limit.
type PerSecond float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *PerSecond) UnmarshalText(text []byte) error {
	n, err := config.ParseRate(string(text))
	if err == nil && n <= 0 {
		err = fmt.Errorf("%s is not a rate above zero (example: 10/s)", brief.Quoted(string(text)))
	}
	*r = PerSecond(n)
	return err
}
