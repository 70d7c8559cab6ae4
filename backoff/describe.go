package backoff

import (
	"fmt"
	"math"
	"strings"

	"github.com/reprisemq/reprise/internal/brief"
)

// String returns a description of the schedule, for example "always 5m".
func (f Fixed) String() string { return "always " + brief.Duration(f.Delay(1)) }

// maxListed limits the number of List entries that String prints before the last entry.
const maxListed = 6

// String returns a description of the schedule, for example "1s, 10s, then always 1m".
func (l List) String() string {
	if len(l) < 2 {
		return Fixed(l.Delay(1)).String()
	}
	var all []string
	for i, d := range l[:len(l)-1] {
		if i == maxListed {
			all = append(all, "…")
			break
		}
		all = append(all, brief.Duration(d))
	}
	return fmt.Sprintf("%s, then %s", strings.Join(all, ", "), Fixed(l.Delay(len(l))))
}

// String returns a description of the schedule, for example "exponential from 1s ×2 up to 1h".
func (e Exponential) String() string {
	e = e.withDefaults()
	return fmt.Sprintf("exponential from %s ×%v up to %s", brief.Duration(e.Initial), e.Factor, brief.Duration(e.Max))
}

// String returns a description of the schedule, for example "linear from 1s +5s up to 1h".
func (l Linear) String() string {
	l = l.withDefaults()
	return fmt.Sprintf("linear from %s +%s up to %s", brief.Duration(l.Initial), brief.Duration(l.Step), brief.Duration(l.Max))
}

// String returns a description of the schedule with its Initial, Factor and Max.
func (d Decorrelated) String() string {
	d = d.withDefaults()
	return fmt.Sprintf("decorrelated from %s, at most ×%v the previous delay, up to %s", brief.Duration(d.Initial), d.Factor, brief.Duration(d.Max))
}

// String returns a description of the schedule, for example "always 5m, half random".
func (j Jitter) String() string {
	j = j.withDefaults()
	how := fmt.Sprintf("%v%% random", math.Round(1000*j.Spread)/10)
	switch j.Spread {
	case 0:
		return fmt.Sprint(j.Backoff)
	case 0.5:
		how = "half random"
	case 1:
		how = "all random"
	}
	return fmt.Sprintf("%v, %s", j.Backoff, how)
}
