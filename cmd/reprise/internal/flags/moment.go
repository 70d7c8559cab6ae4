package flags

import (
	"time"

	"github.com/reprisemq/reprise/internal/params"
)

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
