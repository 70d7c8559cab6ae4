package cli

import (
	"fmt"
	"regexp"
	"strconv"
)

// perSecond is a flag such as 10/s, 100/m or 5000/h. 0 is no limit.
type perSecond float64

var ratePattern = regexp.MustCompile(`^(\d+(?:\.\d+)?)/(s|m|h)$`)

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *perSecond) UnmarshalText(text []byte) error {
	m := ratePattern.FindStringSubmatch(string(text))
	if m == nil {
		return fmt.Errorf("%q is no rate: write one such as 10/s, 100/m or 5000/h", text)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil || n <= 0 {
		return fmt.Errorf("%q is no rate: write one above zero, such as 10/s", text)
	}
	*r = perSecond(n / map[string]float64{"s": 1, "m": 60, "h": 3600}[m[2]])
	return nil
}
