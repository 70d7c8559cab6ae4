package reprisetest

import (
	"cmp"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/broker"
)

// Defaults of Config.
const (
	DefaultPatience     = 30 * 24 * time.Hour  // in virtual time
	DefaultRealPatience = 30 * time.Second     // in real time
	DefaultLimit        = 100 * 24 * time.Hour // virtual
)

// Config adjusts what [Run], [New] and [Listen] do, which are also its methods:
//
//	reprisetest.Config{Patience: time.Hour}.Run(t, func(t *testing.T, b *reprisetest.Broker) { … })
//
// The zero value means the defaults.
type Config struct {
	// Broker configures the broker. Default: in memory, with the user guest.
	Broker broker.Config

	// Patience is how long [Broker.Drain] and the other functions that wait do
	// so before the test fails. Default 30 days of virtual time, or 30 s of real
	// time.
	Patience time.Duration

	// Limit is how much virtual time a test may take in all. One that waits for
	// what never happens would go on for ever: the heartbeats of a connection
	// are enough to keep the clock going. Default 100 days.
	Limit time.Duration
}

// Validate reports settings that cannot work and what to write instead. What is
// wrong with Broker, broker.New says.
func (c Config) Validate() error {
	switch {
	case c.Patience < 0:
		return fmt.Errorf("reprisetest: Config.Patience %s is negative: use 0 for %s, or %s in real time", c.Patience, DefaultPatience, DefaultRealPatience)
	case c.Limit < 0:
		return fmt.Errorf("reprisetest: Config.Limit %s is negative: use 0 for %s", c.Limit, DefaultLimit)
	}
	return nil
}

func (c Config) withDefaults(virtual bool) Config {
	if c.Patience == 0 {
		c.Patience = DefaultRealPatience
		if virtual {
			c.Patience = DefaultPatience
		}
	}
	c.Limit = cmp.Or(c.Limit, DefaultLimit)
	return c
}

// TB is what this package needs of a test. *testing.T and *testing.B have it, and
// so have those of other frameworks, such as *rapid.T and GinkgoT(). Fatalf must
// not return.
type TB interface {
	Helper()
	Cleanup(f func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}
