package api

import (
	"fmt"
	"time"
)

// Duration is a time.Duration, in JSON as Go writes it: "1m30s".
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q is no duration: write it as 90s, 1m30s or 2h", text)
	}
	*d = Duration(parsed)
	return nil
}
