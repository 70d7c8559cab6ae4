package params

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
)

// Duration is a time.Duration. Its JSON form is the Go form: "1m30s". Input may also have days: "7d", "1d12h".
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := parseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%s is not a duration (examples: 90s, 1m30s, 2h, 7d)", brief.Quoted(string(text)))
	}
	*d = Duration(parsed)
	return nil
}

// parseDuration parses a duration, which may begin with a number of days: 7d, 1d12h.
func parseDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil || rest == "" {
		return time.Duration(n) * 24 * time.Hour, err
	}
	d, err := time.ParseDuration(rest)
	return time.Duration(n)*24*time.Hour + d, err
}
