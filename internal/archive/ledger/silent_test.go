package ledger_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/topology"
)

// silent is a consumer without Reprise. It records the time of each acknowledgement.
type silent struct {
	mu   sync.Mutex
	acks []time.Time
}

// consume takes a message of the queue orders at a time, and acknowledges it after hold. The result stops the consumer.
func (s *silent) consume(t *testing.T, h *env, hold time.Duration) (stop func()) {
	t.Helper()
	ch := h.channel(t)
	if err := ch.Qos(1, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume("orders", "silent", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for d := range deliveries {
			time.Sleep(hold)
			s.mu.Lock()
			s.acks = append(s.acks, time.Now())
			s.mu.Unlock()
			if err := d.Ack(false); err != nil {
				t.Error(err)
			}
		}
	}()
	return func() {
		if err := ch.Cancel("silent", false); err != nil {
			t.Error(err)
		}
		<-ended
	}
}

// since returns the number of acknowledgements after a time.
func (s *silent) since(at time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ack := range s.acks {
		if ack.After(at) {
			n++
		}
	}
	return n
}

// An account is never exactly balanced if a consumer that does not report has acknowledged messages since its opening.
func TestSilentConsumersAreNeverBalanced(t *testing.T) {
	const traffic = 3 * time.Minute
	for _, idle := range []bool{true, false} { // when the account is opened
		for when, period := range map[string][2]time.Duration{"always": {0, traffic}, "later": {time.Minute, traffic}, "during the opening": {0, 40 * time.Second}} {
			for share, hold := range map[string]time.Duration{"large": 0, "small": 30 * time.Second} {
				for _, ends := range []bool{true, false} { // whether the traffic ends
					t.Run(fmt.Sprintf("opened idle %t, silent %s, share %s, traffic ends %t", idle, when, share, ends), func(t *testing.T) {
						runEnv(t, func(t *testing.T, h *env) {
							h.orders(t, obey)
							if idle {
								h.line(t)
							}
							s := &silent{}
							last := h.traffic(t, traffic, s.during(t, h, period, hold), s.check(t))
							if ends {
								last = h.line(t)
								s.check(t)(last)
							}
							must := idle && ends || hold == 0 && when == "always"
							if must && last.State != ledger.Unknown {
								t.Errorf("after %d unreported messages: got %+v, want state unknown", s.since(time.Time{}), last)
							}
						})
					})
				}
			}
		}
	}
}

// The rejections of a worker do not hide the acknowledgements of a consumer that does not report.
func TestSilentConsumersBesideRejectionsAreUnknown(t *testing.T) {
	for name, route := range map[string]topology.Route{
		"dead-letter": topology.DeadLettering{Delay: 20 * time.Millisecond}, "requeue": topology.Requeuing{},
	} {
		t.Run(name, func(t *testing.T) {
			runEnv(t, func(t *testing.T, h *env) {
				h.orders(t, obey, func(c *reprise.WorkerConfig) { c.Strategy.Route = route })
				h.line(t)
				s := &silent{}
				h.traffic(t, time.Minute, s.during(t, h, [2]time.Duration{0, time.Minute}, 10*time.Second), s.check(t))
				if l := h.line(t); l.State != ledger.Unknown || l.Missing != int64(s.since(l.Since)) {
					t.Errorf("after %d unreported messages: got %+v, want state unknown", s.since(l.Since), l)
				}
			})
		})
	}
}

// during returns a function that consumes in a period of the traffic.
func (s *silent) during(t *testing.T, h *env, period [2]time.Duration, hold time.Duration) func(time.Duration) {
	var stop func()
	return func(at time.Duration) {
		switch {
		case at >= period[1] && stop != nil:
			stop()
			stop = nil
			if s.since(time.Time{}) == 0 {
				t.Error("the silent consumer received no message")
			}
		case at >= period[0] && at < period[1] && stop == nil:
			stop = s.consume(t, h, hold)
		}
	}
}

// check returns a function that checks that a line does not claim an exact balance over acknowledgements of s.
func (s *silent) check(t *testing.T) func(ledger.Line) {
	return func(l ledger.Line) {
		t.Helper()
		if n := s.since(l.Since) - s.since(l.At); l.State == ledger.Balanced && l.Slack == 0 && n > 0 {
			t.Errorf("at %s, with %d unreported acknowledgements: got %+v, want no exact balance", l.At, n, l)
		}
		if l.State == ledger.Differs {
			t.Errorf("at %s: got %+v, want no discrepancy", l.At, l)
		}
	}
}

// traffic publishes messages for a time, and calls check with the line of the account after each sample. It calls step with
// the time since its start, and at its end. It returns the last line.
func (h *env) traffic(t *testing.T, length time.Duration, step func(at time.Duration), check func(ledger.Line)) (last ledger.Line) {
	t.Helper()
	begin := time.Now()
	bodies := []string{"a", "b", "c", "d", "twice", "e", "never", "f"}
	for i := 0; time.Since(begin) < length; i++ {
		step(time.Since(begin))
		h.publish(t, bodies[i%len(bodies)])
		time.Sleep(450 * time.Millisecond)
		report, err := h.ledger.Report(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(report.Accounts, func(l ledger.Line) bool { return l.Name == "orders" }); i >= 0 && report.Accounts[i].At.After(last.At) {
			last = report.Accounts[i]
			check(last)
		}
	}
	step(length)
	return last
}

// If all workers report, an account has no discrepancy and a known state, even if it was opened during traffic and workers restart.
func TestReportingWorkersAreNeverUnknown(t *testing.T) {
	for _, idle := range []bool{true, false} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("opened idle %t, restarts %t", idle, restarts), func(t *testing.T) {
				runEnv(t, func(t *testing.T, h *env) {
					w := h.orders(t, obey)
					if idle {
						h.line(t)
					}
					check := func(l ledger.Line) {
						t.Helper()
						if l.State == ledger.Unknown || l.State == ledger.Differs {
							t.Errorf("at %s: got %+v, want no discrepancy and a known state", l.At, l)
						}
					}
					next := 20 * time.Second
					h.traffic(t, 4*time.Minute, func(at time.Duration) {
						if restarts && at >= next {
							next += 20 * time.Second
							w.Stop()
							h.client = h.Client(t, &reprise.Config{Observer: h.book(t, h.db, fmt.Sprint("worker after ", at))})
							w = h.orders(t, obey)
						}
					}, check)
					l := h.line(t)
					check(l)
					if l.State != ledger.Balanced || l.Slack != 0 {
						t.Errorf("idle: got %+v, want an exact balance", l)
					}
				})
			})
		}
	}
}
