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
	"github.com/reprisemq/reprise/topology/preset"
)

// Show is the service at work for a few seconds, on a broker of any kind: purges
// are published, the CDN has its peak hours in the middle, and a worker waits for
// them to be over.
type Show struct {
	Purges int           // how many; default 180
	Over   time.Duration // for how long they are published; default 9 s, of which the CDN's peak is the middle third
	Room   int           // of the CDN's queue; default 16
	First  time.Duration // the first expiration; default 100 ms, where the design has 10 s

	// Breaker is the worker's. Default: none.
	Breaker reprise.Breaker

	// Beside is who else consumes from the queue; default nobody.
	Beside func(ctx context.Context, design preset.CDNPurge, p *Purger, done func(id string)) error

	// Dial connects a client to the broker, with c as its settings. Required.
	Dial func(ctx context.Context, c *reprise.Config) (*reprise.Client, error)

	Out io.Writer // default: nowhere
}

func (s Show) withDefaults() Show {
	s.Purges = cmp.Or(s.Purges, 180)
	s.Over = cmp.Or(s.Over, 9*time.Second)
	s.Room = cmp.Or(s.Room, 16)
	s.First = cmp.Or(s.First, 100*time.Millisecond)
	if s.Out == nil {
		s.Out = io.Discard
	}
	return s
}

// patience is how long after the last purge was published all are to be done.
const patience = time.Minute

// rate is what the CDN works off per hour: twice what is published, but a tenth of
// that at its peak.
func (s Show) rate(since time.Duration) float64 {
	published := float64(s.Purges) / s.Over.Hours()
	if s.peak(since) {
		return published / 10
	}
	return 2 * published
}

func (s Show) peak(since time.Duration) bool { return since >= s.Over/3 && since < s.Over*2/3 }

// Run plays it, and returns what is wrong with the balance: nil if every purge was
// done, or parked.
func (s Show) Run(ctx context.Context) error {
	s = s.withDefaults()
	if s.Purges < 0 || s.Over <= 0 || s.Room < 1 {
		return fmt.Errorf("cdnpurge: %d purges over %s with room for %d: use positive numbers", s.Purges, s.Over, s.Room)
	}
	design := preset.CDNPurge{First: s.First}
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

// play has everybody work until all is done.
func (s Show) play(ctx context.Context, client *reprise.Client, worker *reprise.Worker, design preset.CDNPurge, p *Purger, cdn *CDN, c *count) error {
	ctx, cancel := context.WithTimeout(ctx, s.Over+patience)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	failed := make(chan error, 3) // one for each of those who work
	work := func(what func(context.Context) error) {
		all.Go(func() {
			if err := what(ctx); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	work(worker.Run)
	work(func(ctx context.Context) error { return s.publish(ctx, client, c) })
	if s.Beside != nil {
		work(func(ctx context.Context) error { return s.Beside(ctx, design, p, c.done) })
	}
	began, tick, shown := time.Now(), time.NewTicker(time.Second), rows(0)
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
			return nil // the balance says what is missing
		}
	}
}

// rows are how many seconds have a row. A ticker drops ticks when the machine is busy,
// and none is left out for that.
type rows int

// due are the seconds that have passed and have no row yet.
func (r *rows) due(since time.Duration) (seconds []time.Duration) {
	for ; time.Duration(*r+1)*time.Second <= since; *r++ {
		seconds = append(seconds, time.Duration(*r+1)*time.Second)
	}
	return seconds
}

// last are those when nothing will happen any more: the second that has begun is as it
// will be at its end.
func (r *rows) last(since time.Duration) []time.Duration {
	return r.due((since + time.Second - 1).Truncate(time.Second))
}

// line says how things are.
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

// publish publishes the purges, evenly.
func (s Show) publish(ctx context.Context, client *reprise.Client, c *count) error {
	tick := time.NewTicker(s.Over / time.Duration(s.Purges))
	defer tick.Stop()
	for i := range s.Purges {
		body, err := json.Marshal([]string{fmt.Sprintf("/page/%d", i)})
		if err != nil {
			return err
		}
		m := &reprise.Message{
			Exchange: preset.CDNPurgeExchange, RoutingKey: Kinds[i%len(Kinds)],
			MessageID: rand.Text(), ContentType: "application/json", Body: body,
		}
		c.sends(m.MessageID)
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

// serve has the stand-in listen on the loopback interface until stop is called.
func serve(cdn *CDN) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: cdn, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ErrServerClosed
	return "http://" + listener.Addr().String(), func() {
		_ = server.Close()
		serving.Wait()
	}, nil
}
