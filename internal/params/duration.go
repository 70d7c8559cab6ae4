package params

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
)

// Duration is a time.Duration. Its JSON form is the Go form: "1m30s".
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%s is not a duration (examples: 90s, 1m30s, 2h)", brief.Quoted(string(text)))
	}
	*d = Duration(parsed)
	return nil
}
