package announce

import (
	"context"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/protocol"
)

const (
	// reportDelay is the time between the first retry of a report and the report. During this time, further retries are
	// collected.
	reportDelay = 250 * time.Millisecond

	// maxCollected is the maximum number of collected retries. Further retries are only counted, until the next report.
	maxCollected = 4096
)

// retries collects the retries of a client until they are reported.
type retries struct {
	due chan struct{} // receives a token when the first retry is collected

	mu      sync.Mutex
	n       int
	queues  map[string]*pendingReports
	missing map[string]int64 // by queue: number of retries that were not collected or not sent
}

type pendingReports struct {
	reports []protocol.RetryReport // all except the last are full
}

func newRetries() *retries {
	return &retries{due: make(chan struct{}, 1), queues: map[string]*pendingReports{}, missing: map[string]int64{}}
}

// add collects a retry. It does not block.
func (r *retries) add(queue string, x protocol.Retry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n >= maxCollected {
		r.missing[queue]++
		return
	}
	g := r.queues[queue]
	if g == nil {
		g = &pendingReports{}
		r.queues[queue] = g
	}
	if n := len(g.reports); n == 0 || g.reports[n-1].Full() {
		g.reports = append(g.reports, protocol.RetryReport{Queue: queue})
	}
	last := &g.reports[len(g.reports)-1]
	last.Retries = append(last.Retries, x)
	if r.n++; r.n == 1 {
		select {
		case r.due <- struct{}{}:
		default:
		}
	}
}

// take returns and removes the collected retries.
func (r *retries) take() (all []protocol.RetryReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for queue, g := range r.queues {
		g.reports[0].Missing = r.missing[queue]
		delete(r.missing, queue)
		all = append(all, g.reports...)
	}
	r.n = 0
	clear(r.queues)
	return all
}

// countMissing counts the retries of reports that were taken but not sent.
func (r *retries) countMissing(reports []protocol.RetryReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range reports {
		r.missing[x.Queue] += int64(len(x.Retries)) + x.Missing
	}
}

// Retrying collects a retry for the next report. It does not block.
func (m *Member) Retrying(x protocol.Retry) { m.agent.retries.add(m.Queue, x) }

// declareRetries declares the exchange for the reports.
func (s *session) declareRetries(ctx context.Context) error {
	return s.exchange(ctx, protocol.Retries().Exchanges[0])
}

// reportRetries sends the collected retries without waiting for confirms.
func (s *session) reportRetries() {
	if s.conn.Blocked() != nil {
		return // the retries remain collected
	}
	reports := s.agent.retries.take()
	for i, r := range reports {
		if s.retriesRefused.Load() {
			continue
		}
		r.Host = s.agent.cfg.Host
		body, err := r.Encode()
		if err != nil {
			continue // impossible, because the name of a queue is short enough
		}
		if err := s.ch.Load().Send(protocol.RetriesExchange, r.Queue, &amqpconn.Message{ContentType: "application/json", Timestamp: time.Now(), Body: body}); err != nil {
			s.agent.retries.countMissing(reports[i:])
			return
		}
	}
}
