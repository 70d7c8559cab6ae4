package flags

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
)

// Size is a number of bytes on the command line: 500000000, 256MiB, 2GiB.
type Size int64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(text []byte) error {
	n, err := config.ParseSize(string(text))
	*s = Size(n)
	return err
}

// String returns the size in the notation of the command line.
func (s Size) String() string {
	return config.FormatSize(int64(s))
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
