package migrate

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/topology"
)

// statistics waits until the management API shows everything that happened before its begin. RabbitMQ collects statistics at an
// interval (collect_statistics_interval) that it does not tell. A new queue has no counts until they are collected. If one queue
// after the other is declared when the one before has counts, then at least an interval passes from each count to the next.
type statistics struct {
	begin time.Time
	least time.Duration // minimum time, because quorum queues report their counts at an interval of 5 s of their own
	left  int           // number of markers that still need counts
	name  string        // of the declared marker; "": none
}

// observes reports whether the run waits for statistics. A Settle below poll trusts old statistics.
func (r *run) observes() bool { return r.cfg.Settle > poll }

// since returns the wait for a number of intervals.
func (r *run) since(intervals int) *statistics {
	s := &statistics{begin: time.Now(), least: time.Duration(intervals) * r.cfg.Settle}
	if r.observes() {
		s.left = intervals + 1 // the first one has counts when the current interval ends
	}
	return s
}

// current reports whether the statistics are current.
func (s *statistics) current(ctx context.Context, r *run) (bool, error) {
	if s.left > 0 {
		if s.name == "" {
			s.name = RecordPrefix + r.record.Queue + "." + rand.Text()[:8] // statistics of a deleted queue may remain
			marker := topology.Queue{Name: s.name, Transient: true, Exclusive: true}
			return false, r.do(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareQueue(ctx, marker, false) })
		}
		found, err := r.broker.queue(ctx, s.name)
		if err != nil || !found.Counted {
			return false, err
		}
		s.left--
		s.end(r)
	}
	return s.left == 0 && time.Since(s.begin) >= s.least, nil
}

// end removes the marker. The end of the connection also removes it.
func (s *statistics) end(r *run) {
	if s == nil || s.name == "" {
		return
	}
	name := s.name
	s.name = ""
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.do(ctx, func(ch *amqpconn.Channel) error { return ch.DeleteQueue(ctx, name) })
}
