package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// unixPrefix marks a time outside the years 0 to 9999, which RFC 3339 cannot express.
const unixPrefix = "unix:"

// Stamp is the time in a property of a message, in whole seconds. Its JSON form is RFC 3339. A program can publish any
// number of seconds, for example a time in milliseconds, so a time outside the years 0 to 9999 is "unix:" followed by the
// seconds since 1970.
type Stamp struct{ time.Time }

// MarshalJSON implements [json.Marshaler].
func (s Stamp) MarshalJSON() ([]byte, error) {
	if b, err := s.Time.MarshalJSON(); err == nil {
		return b, nil
	}
	return fmt.Appendf(nil, `"%s%d"`, unixPrefix, s.Unix()), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Stamp) UnmarshalJSON(b []byte) error {
	text, found := strings.CutPrefix(strings.Trim(string(b), `"`), unixPrefix)
	if !found {
		return s.Time.UnmarshalJSON(b)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%.60s is not a time (use RFC 3339, or %s and seconds)", b, unixPrefix)
	}
	s.Time = time.Unix(n, 0).UTC()
	return nil
}
