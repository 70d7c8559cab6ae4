package replay

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/archive/waiting"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testhook"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// actVariable is the environment variable that contains the waiting.Do for the role act.
const actVariable = "REPRISE_CHAOS_ACT"

const (
	waits     = 1500 // number of waiting messages: three times the copies in flight
	copies    = 500  // maximum number of duplicates (see docs/waiting.md)
	postponed = 5 * time.Hour
)

// act performs an act on all waiting messages.
func act(ctx context.Context) error {
	a, c, err := open(ctx)
	if err != nil {
		return err
	}
	r := waiting.New(c, a, waiting.Config{})
	fmt.Println("ready")
	do := waiting.Act{Do: waiting.Do(os.Getenv(actVariable)), Filter: store.WaitingFilter{Queue: workQueue}}
	if do.Do == waiting.Postpone {
		do.Delay = params.Duration(postponed)
	}
	_, err = r.Act(ctx, do, "ann")
	return err
}

// A process that is killed during an act on waiting messages does not lose a message. RetryNow does not duplicate
// messages. ParkNow and Postpone duplicate at most the copies in flight.
func TestKilledActLosesNoMessage(t *testing.T) {
	t.Parallel()
	wait, err := topology.Buckets{}.Wait(topology.Delivery{Queue: workQueue}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	later, err := topology.Buckets{}.Wait(topology.Delivery{Queue: workQueue}, postponed)
	if err != nil {
		t.Fatal(err)
	}
	for do, to := range map[waiting.Do]string{waiting.RetryNow: workQueue, waiting.ParkNow: failedQueue, waiting.Postpone: later.RoutingKey} {
		t.Run(string(do), func(t *testing.T) {
			s := newFixture(t)
			s.wait(wait)
			p := start(t, "act", append(s.environment, actVariable+"="+string(do))...)
			testkit.Eventually(t, timeout, func() bool {
				q, err := s.channel.QueueDeclarePassive(to, true, false, false, false, nil)
				if err != nil { // the process has not declared the queue yet
					s.reopen()
				}
				return err == nil && q.Messages >= copies/5
			})
			p.kill()
			there, moved := map[string]int{}, map[string]int{}
			testkit.Eventually(t, timeout, func() error { // the broker requeues the deliveries of the process
				s.drain(wait.RoutingKey, there)
				s.drain(to, moved)
				for i := range waits {
					if id := fmt.Sprint(i); there[id]+moved[id] == 0 {
						return fmt.Errorf("message %s is lost (%d waiting, %d moved)", id, len(there), len(moved))
					}
				}
				return nil
			})
			twice := 0
			for i := range waits {
				twice += there[fmt.Sprint(i)] + moved[fmt.Sprint(i)] - 1
			}
			t.Logf("killed at %d of %d moved messages, %d duplicates", len(moved), waits, twice)
			if twice > copies || do == waiting.RetryNow && twice > 0 {
				t.Errorf("duplicates of %s: got %d, want at most %d, and 0 for %s", do, twice, copies, waiting.RetryNow)
			}
		})
	}
}

// wait publishes messages to a wait queue, and reports them to the archive.
func (s *fixture) wait(hop topology.Hop) {
	s.Helper()
	c, err := reprise.Dial(s.Context(), s.url, nil)
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := c.Declare(s.Context(), hop.Topology); err != nil {
		s.Fatal(err)
	}
	var all []*reprise.Message
	report := protocol.RetryReport{Queue: workQueue}
	for i := range waits {
		id := fmt.Sprint(i)
		all = append(all, &reprise.Message{RoutingKey: hop.RoutingKey, MessageID: id, Body: []byte(id), Expiration: hop.TTL})
		report.Retries = append(report.Retries, protocol.Retry{MessageID: id, Wait: hop.RoutingKey, Attempt: 1, Failed: time.Now(), Due: time.Now().Add(hop.Delay)})
		if !report.Full() && i < waits-1 {
			continue
		}
		body, err := report.Encode()
		if err == nil {
			err = testhook.Retried(s.Context(), s.archive, body)
		}
		if err != nil {
			s.Fatal(err)
		}
		report.Retries = nil
	}
	if err := c.PublishBatch(s.Context(), all); err != nil {
		s.Fatal(err)
	}
}

// drain removes the ready messages of a queue, and counts them by id.
func (s *fixture) drain(queue string, into map[string]int) {
	s.Helper()
	for {
		d, ok, err := s.channel.Get(queue, true)
		if err != nil {
			s.Fatal(err)
		}
		if !ok {
			return
		}
		into[d.MessageId]++
	}
}

// reopen replaces a channel that the broker has closed.
func (s *fixture) reopen() {
	s.Helper()
	var err error
	if s.channel, err = s.conn.Channel(); err != nil {
		s.Fatal(err)
	}
}
