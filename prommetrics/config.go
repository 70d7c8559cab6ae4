package prommetrics

import (
	"errors"
	"fmt"
	"math"
)

// Config chooses buckets: the upper bounds, inclusive, into which a histogram
// counts. The zero value means the defaults.
type Config struct {
	// HandlerDuration is for reprise_handler_duration_seconds. Default: 5, 10, 25,
	// 50, 100, 250 and 500 ms, 1, 2.5, 5, 10 and 30 s, 1 and 5 min.
	HandlerDuration []float64

	// PublishDuration is for reprise_publish_duration_seconds. Default: 1, 2.5, 5,
	// 10, 25, 50, 100, 250 and 500 ms, 1, 2.5, 5, 10 and 30 s.
	PublishDuration []float64

	// MessageAge is for reprise_message_age_seconds. Default: 1, 2, 5 and 15 s, 1, 5
	// and 15 min, 1 and 4 h, 1 and 7 days. Below 1 s there is nothing to see: the
	// timestamps of AMQP are whole seconds. An age of more than a year is taken for a wrong
	// timestamp and left out: it would spoil the sum.
	MessageAge []float64

	// RetryDelay is for reprise_retry_delay_seconds. Default: 100 ms, 1, 5 and 15 s,
	// 1, 5 and 15 min, 1, 4 and 12 h, 1 and 7 days.
	RetryDelay []float64

	// MessageAttempts is for reprise_message_attempts. Default: 1, 2, 3, 4, 5, 7, 10,
	// 15, 20 and 50. Have a bound at your Policy's MaxAttempts.
	MessageAttempts []float64

	// NativeHistograms keeps each histogram as a native one, too, whose buckets grow
	// by a tenth and are at most 160. A Prometheus that does not scrape those goes
	// on with the ones above. Default: no.
	NativeHistograms bool
}

func (c Config) withDefaults() Config {
	const minute, hour, day = 60, 3600, 24 * 3600
	use := func(bounds *[]float64, standard ...float64) {
		if len(*bounds) == 0 {
			*bounds = standard
		}
	}
	use(&c.HandlerDuration, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, minute, 5*minute)
	use(&c.PublishDuration, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)
	use(&c.MessageAge, 1, 2, 5, 15, minute, 5*minute, 15*minute, hour, 4*hour, day, 7*day)
	use(&c.RetryDelay, .1, 1, 5, 15, minute, 5*minute, 15*minute, hour, 4*hour, 12*hour, day, 7*day)
	use(&c.MessageAttempts, 1, 2, 3, 4, 5, 7, 10, 15, 20, 50)
	return c
}

// Validate reports bounds that cannot be used and what to write instead.
func (c Config) Validate() error {
	var errs []error
	check := func(name string, bounds []float64) {
		for i, bound := range bounds {
			switch {
			case math.IsNaN(bound), math.IsInf(bound, 0):
				errs = append(errs, fmt.Errorf("prommetrics: Config.%s has the bound %v: use finite ones, the bucket above them is always there", name, bound))
			case i > 0 && bound <= bounds[i-1]:
				errs = append(errs, fmt.Errorf("prommetrics: Config.%s has the bound %v after %v: sort them, each higher than the one before", name, bound, bounds[i-1]))
			}
		}
	}
	check("HandlerDuration", c.HandlerDuration)
	check("PublishDuration", c.PublishDuration)
	check("MessageAge", c.MessageAge)
	check("RetryDelay", c.RetryDelay)
	check("MessageAttempts", c.MessageAttempts)
	return errors.Join(errs...)
}
