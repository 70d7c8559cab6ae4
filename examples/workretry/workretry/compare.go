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

// Comparison configures [Compare]. The zero value selects the defaults.
type Comparison struct {
	Jobs  int           // number of jobs in each way; default: DefaultJobs, minimum: MinJobs
	Delay time.Duration // delay of a retry; default: DefaultDelay (the design: 5 min)
	Seed  uint64        // seed for choosing the number of failures of each job
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

// Validate returns an error if Jobs or Delay is out of range.
func (c Comparison) Validate() error {
	c = c.withDefaults()
	if c.Jobs < MinJobs {
		return fmt.Errorf("workretry: jobs must be at least %[2]d: got %[1]d (each break needs 3)", c.Jobs, MinJobs)
	}
	if c.Delay < time.Millisecond || c.Delay > time.Hour || c.Delay%time.Millisecond != 0 {
		return fmt.Errorf("workretry: delay must be whole milliseconds from 1ms to 1h: got %s", c.Delay)
	}
	return nil
}

// Compare processes the same jobs in all four ways, in parallel. It declares queues and exchanges that only this
// comparison uses, and deletes them at the end. It returns an error if an operation fails, or if the outcome of a job
// deviates from docs/guarantees.md.
func Compare(ctx context.Context, b Broker, c Comparison) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if u, err := url.Parse(b.URL); err == nil && u.Scheme == "amqps" {
		return nil, fmt.Errorf("workretry: cannot cut an encrypted connection at a frame (use an amqp:// URL)")
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
				cancel(errs[i]) // stop the other ways
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return report, nil
}

// prefix returns a random prefix, so that the queues of several comparisons on a broker have different names.
func prefix() string {
	var random [4]byte
	_, _ = rand.Read(random[:])
	return "workretry-" + hex.EncodeToString(random[:]) + "."
}
