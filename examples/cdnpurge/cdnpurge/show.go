package cdnpurge

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
)

// Show runs the service for a few seconds. It publishes purges, and a worker processes them. The middle third of the
// time of publishing is the peak of the CDN. During the peak, the queue of the CDN fills up, so the CDN refuses purges,
// and the worker retries them.
type Show struct {
	Purges int           // number of purges; required
	Over   time.Duration // duration of publishing, whose middle third is the CDN's peak; required
	Room   int           // capacity of the CDN's queue; required
	First  time.Duration // delay of the first retry; default: 100 ms (the design: 10 s)

	// Breaker is the circuit breaker of the worker. Default: none.
	Breaker reprise.Breaker

	// Foreign, if set, runs a second consumer on the queue, such as Other. Default: none.
	Foreign func(ctx context.Context, design Design, p *Purger, done func(id string)) error

	// Dial connects a client to the broker, with the configuration c. Required.
	Dial func(ctx context.Context, c *reprise.Config) (*reprise.Client, error)

	Out io.Writer // default: io.Discard
}

func (s Show) withDefaults() Show {
	s.First = cmp.Or(s.First, 100*time.Millisecond)
	if s.Out == nil {
		s.Out = io.Discard
	}
	return s
}

// timeout limits the time between the last publish and the settlement of all purges.
const timeout = time.Minute

// rate returns the number of purges that the CDN processes per hour. It is a tenth of the publishing rate during the
// peak, and otherwise twice the publishing rate.
func (s Show) rate(since time.Duration) float64 {
	published := float64(s.Purges) / s.Over.Hours()
	if s.peak(since) {
		return published / 10
	}
	return 2 * published
}

func (s Show) peak(since time.Duration) bool { return since >= s.Over/3 && since < s.Over*2/3 }

// Run runs the service until all purges are processed or parked. It returns an error if an operation fails, or if a
// purge is neither processed nor parked one minute after the last publish.
func (s Show) Run(ctx context.Context) error {
	s = s.withDefaults()
	if s.Purges < 1 || s.Over <= 0 || s.Room < 1 {
		return fmt.Errorf("cdnpurge: Purges, Over and Room must be positive: got %d, %s, %d", s.Purges, s.Over, s.Room)
	}
	design := Design{RoutingKeys: Kinds, First: s.First}
	if err := design.Validate(); err != nil {
		return err
	}
	began := time.Now()
	count := newCount(s.Purges)
	cdn := &CDN{Room: s.Room, Rate: func(at time.Time) float64 { return s.rate(at.Sub(began)) }, Answered: count.answered}
	url, stop, err := serve(cdn)
	if err != nil {
		return err
	}
	defer stop()
	client, err := s.Dial(ctx, &reprise.Config{Observer: count})
	if err != nil {
		return err
	}
	p := &Purger{URL: url, Client: &http.Client{Transport: &http.Transport{}}}
	defer p.Client.CloseIdleConnections()
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue: preset.CDNPurgeQueue, Strategy: design.Strategy(), Handler: p.Handler(), Breaker: s.Breaker,
	})
	if err != nil {
		return errors.Join(err, client.Close(ctx))
	}
	err = client.Declare(ctx, design.Topology())
	if err == nil {
		err = s.play(ctx, client, worker, design, p, cdn, count)
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err = errors.Join(err, client.Close(closing)); err != nil {
		return err
	}
	return count.balance(s.Out)
}

// play runs the worker, the publisher and the second consumer. It returns when all purges are settled, when one of the
// three fails, or after the timeout.
func (s Show) play(ctx context.Context, client *reprise.Client, worker *reprise.Worker, design Design, p *Purger, cdn *CDN, c *count) error {
	ctx, cancel := context.WithTimeout(ctx, s.Over+timeout)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	failed := make(chan error, 3) // one for each goroutine
	work := func(what func(context.Context) error) {
		all.Go(func() {
			if err := what(ctx); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	work(worker.Run)
	work(func(ctx context.Context) error { return s.publish(ctx, client, c) })
	if s.Foreign != nil {
		work(func(ctx context.Context) error { return s.Foreign(ctx, design, p, c.done) })
	}
	began, tick, shown := time.Now(), time.NewTicker(time.Second), rowCounter(0)
	defer tick.Stop()
	fmt.Fprintf(s.Out, "%4s  %5s  %5s  %5s  %5s   the CDN's queue\n", "", "sent", "201", "507", "to do")
	for {
		select {
		case <-tick.C:
			for _, second := range shown.due(time.Since(began)) {
				s.line(second, cdn.Length(), c)
			}
		case <-c.finished:
			for _, second := range shown.last(time.Since(began)) {
				s.line(second, cdn.Length(), c)
			}
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil // balance reports the missing purges
		}
	}
}

// rowCounter is the number of seconds for which a row has been written. A ticker drops ticks on a busy machine, so
// several rows can be due at one tick.
type rowCounter int

// due returns the seconds that have passed since the last row, and counts their rows as written.
func (r *rowCounter) due(since time.Duration) (seconds []time.Duration) {
	for ; time.Duration(*r+1)*time.Second <= since; *r++ {
		seconds = append(seconds, time.Duration(*r+1)*time.Second)
	}
	return seconds
}

// last returns the seconds for which a row is due at the end of the run. They include the current second, because its
// counts are final.
func (r *rowCounter) last(since time.Duration) []time.Duration {
	return r.due((since + time.Second - 1).Truncate(time.Second))
}

// line writes the row of one second.
func (s Show) line(since time.Duration, length int, c *count) {
	sent, accepted, refused, left := c.now()
	note := ""
	if s.peak(since) {
		note = "  peak hours"
	}
	length = min(length, s.Room)
	bar := strings.Repeat("█", length) + strings.Repeat("·", s.Room-length)
	fmt.Fprintf(s.Out, "%2.0f s  %5d  %5d  %5d  %5d   %s%s\n", since.Seconds(), sent, accepted, refused, left, bar, note)
}

// idOf returns the ID of the message that contains the object: publish uses the ID as the object.
func idOf(object json.RawMessage) string { return strings.Trim(string(object), `"`) }

// publish publishes the purges at a constant rate.
func (s Show) publish(ctx context.Context, client *reprise.Client, c *count) error {
	tick := time.NewTicker(s.Over / time.Duration(s.Purges))
	defer tick.Stop()
	for i := range s.Purges {
		id := rand.Text()
		m := &reprise.Message{
			Exchange: preset.CDNPurgeExchange, RoutingKey: Kinds[i%len(Kinds)],
			MessageID: id, ContentType: "application/json", Body: fmt.Appendf(nil, "[%q]", id),
		}
		c.sends(id)
		if err := client.Publish(ctx, m); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// serve starts an HTTP server for cdn on the loopback interface. The function stop closes the server and waits for its
// goroutine.
func serve(cdn *CDN) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: cdn, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // always returns ErrServerClosed
	return "http://" + listener.Addr().String(), func() {
		_ = server.Close()
		serving.Wait()
	}, nil
}
