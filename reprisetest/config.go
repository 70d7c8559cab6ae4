package reprisetest

import (
	"cmp"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/broker"
)

// Defaults of Config.
const (
	DefaultTimeout     = 30 * 24 * time.Hour  // virtual time
	DefaultRealTimeout = 30 * time.Second     // real time
	DefaultLimit       = 100 * 24 * time.Hour // virtual time
)

// Config configures [Run], [New] and [Listen], which are also its methods:
//
//	reprisetest.Config{Timeout: time.Hour}.Run(t, func(t *testing.T, b *reprisetest.Broker) { … })
//
// The zero value selects the defaults.
type Config struct {
	// Broker configures the broker. Default: in memory, with the user guest.
	Broker broker.Config

	// Timeout limits each wait of [Broker.Drain] and of the other methods that wait. If a wait exceeds the Timeout,
	// the test fails. Default: 30 days of virtual time, or 30 s of real time.
	Timeout time.Duration

	// Limit is the maximum virtual time of a test. Without a limit, a test that waits for an
	// impossible event would run forever, because the heartbeats of a connection advance the clock.
	// Default: 100 days.
	Limit time.Duration
}

// Validate reports invalid settings and explains how to fix them. It does not check c.Broker; broker.New does.
func (c Config) Validate() error {
	switch {
	case c.Timeout < 0:
		return fmt.Errorf("reprisetest: Config.Timeout must not be negative: got %s (0 means %s, or %s in real time)", c.Timeout, DefaultTimeout, DefaultRealTimeout)
	case c.Limit < 0:
		return fmt.Errorf("reprisetest: Config.Limit must not be negative: got %s (0 means %s)", c.Limit, DefaultLimit)
	}
	return nil
}

func (c Config) withDefaults(virtual bool) Config {
	if c.Timeout == 0 {
		c.Timeout = DefaultRealTimeout
		if virtual {
			c.Timeout = DefaultTimeout
		}
	}
	c.Limit = cmp.Or(c.Limit, DefaultLimit)
	return c
}

// TB is the part of testing.TB that this package needs. *testing.T and *testing.B implement it, as do types of other
// frameworks, such as *rapid.T and the result of GinkgoT(). Fatalf must not return.
type TB interface {
	Helper()
	Cleanup(f func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}
