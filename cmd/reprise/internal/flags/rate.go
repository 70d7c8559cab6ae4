package flags

import (
	"fmt"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/brief"
)

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
