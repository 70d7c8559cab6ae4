package prommetrics

import (
	"errors"
	"fmt"
	"math"
)

// Config configures histograms. Bucket bounds are inclusive upper bounds. The zero value selects the defaults.
type Config struct {
	// HandlerDuration contains the bucket bounds of reprise_handler_duration_seconds. Default: 5, 10, 25, 50, 100, 250
	// and 500 ms, 1, 2.5, 5, 10 and 30 s, 1 and 5 min.
	HandlerDuration []float64

	// PublishDuration contains the bucket bounds of reprise_publish_duration_seconds. Default: 1, 2.5, 5, 10, 25, 50,
	// 100, 250 and 500 ms, 1, 2.5, 5, 10 and 30 s.
	PublishDuration []float64

	// MessageAge contains the bucket bounds of reprise_message_age_seconds. Default: 1, 2, 5 and 15 s, 1, 5 and 15 min,
	// 1 and 4 h, 1 and 7 days. Bounds below 1 s are useless, because AMQP timestamps are whole seconds. The histogram
	// ignores an age of more than a year, because the timestamp is probably wrong and the age would distort the sum.
	MessageAge []float64

	// RetryDelay contains the bucket bounds of reprise_retry_delay_seconds. Default: 100 ms, 1, 5 and 15 s, 1, 5 and
	// 15 min, 1, 4 and 12 h, 1 and 7 days.
	RetryDelay []float64

	// MessageAttempts contains the bucket bounds of reprise_message_attempts. Include the MaxAttempts of your Policy
	// as a bound. Default: 1, 2, 3, 4, 5, 7, 10, 15, 20 and 50.
	MessageAttempts []float64

	// NativeHistograms also exports each histogram as a native histogram, with at most 160 buckets. Each bucket is at
	// most 10% wider than the bucket below it, unless the histogram needs more than 160 such buckets. A Prometheus
	// server that does not scrape native histograms uses the buckets of the fields above. Default: false.
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

// Validate returns an error if a bound is not finite, or if bounds do not increase.
func (c Config) Validate() error {
	var errs []error
	check := func(name string, bounds []float64) {
		for i, bound := range bounds {
			switch {
			case math.IsNaN(bound), math.IsInf(bound, 0):
				errs = append(errs, fmt.Errorf("prommetrics: Config.%s must only have finite bounds: got %v", name, bound))
			case i > 0 && bound <= bounds[i-1]:
				errs = append(errs, fmt.Errorf("prommetrics: bounds of Config.%s must increase: got %v after %v", name, bound, bounds[i-1]))
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
