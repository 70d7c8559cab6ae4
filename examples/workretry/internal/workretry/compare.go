package workretry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"sync"
	"time"
)

// Comparison says what is compared. Its zero value is a good one.
type Comparison struct {
	Jobs  int           // for each way; default 24, at least MinJobs
	Delay time.Duration // before a retry; default 100 ms. As published it is 5 min.
	Seed  uint64        // for which jobs fail how often
}

// Defaults of Comparison.
const (
	DefaultJobs  = 24
	DefaultDelay = 100 * time.Millisecond
)

func (c Comparison) withDefaults() Comparison {
	if c.Jobs == 0 {
		c.Jobs = DefaultJobs
	}
	if c.Delay == 0 {
		c.Delay = DefaultDelay
	}
	return c
}

// Validate reports what cannot be compared, and what to write instead.
func (c Comparison) Validate() error {
	c = c.withDefaults()
	if c.Jobs < MinJobs {
		return fmt.Errorf("workretry: %d jobs: use at least %d, so that there is one for each thing that breaks", c.Jobs, MinJobs)
	}
	if c.Delay < time.Millisecond || c.Delay > time.Hour || c.Delay%time.Millisecond != 0 {
		return fmt.Errorf("workretry: a delay of %s: use whole milliseconds, from 1ms to 1h", c.Delay)
	}
	return nil
}

// Compare has all four ways do the same jobs, side by side, in queues of its own
// that it removes again. An error means that it could not be done, or that a job
// has come to another end than docs/guarantees.md says.
func Compare(ctx context.Context, b Broker, c Comparison) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if u, err := url.Parse(b.URL); err == nil && u.Scheme == "amqps" {
		return nil, fmt.Errorf("workretry: nothing can be cut at a frame that is encrypted: use an amqp:// URL")
	}
	c = c.withDefaults()
	jobs := plan(c.Jobs, c.Seed)
	all := ways(prefix(), c.Delay)
	report := &Report{Comparison: c, Ways: make([]Result, len(all))}
	errs := make([]error, len(all))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for i, w := range all {
		running.Go(func() {
			t := &trial{broker: b, way: w, delay: c.Delay}
			report.Ways[i] = Result{Name: w.name, way: w}
			report.Ways[i].Jobs, errs[i] = t.run(ctx, jobs)
			if errs[i] != nil {
				cancel(errs[i]) // the others need not go on
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return report, nil
}

// prefix is one that no other comparison on the same broker has.
func prefix() string {
	var random [4]byte
	_, _ = rand.Read(random[:])
	return "workretry-" + hex.EncodeToString(random[:]) + "."
}
