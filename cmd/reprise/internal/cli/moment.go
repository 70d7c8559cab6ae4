package cli

import (
	"time"

	"github.com/reprisemq/reprise/internal/params"
)

// moment is a time on the command line: a date, or a duration before now.
type moment time.Time

func (m moment) time() time.Time { return time.Time(m) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *moment) UnmarshalText(text []byte) error {
	t, err := params.ReadTime(string(text), time.Now(), time.Local)
	*m = moment(t)
	return err
}
