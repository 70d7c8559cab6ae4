package pages

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/figures"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// livePause is the minimum time between two notifications of a page. After liveBeat without an event, the console sends
// a comment, so that a page can detect a broken connection.
const (
	livePause = time.Second
	liveBeat  = 15 * time.Second
)

// live notifies pages of changes in the archive, in the broker's queues or in the workers. It checks for changes only
// while pages listen, and then once for all pages.
type live struct {
	archive *store.Archive
	broker  *figures.Broker
	done    *figures.DoneRates
	fleet   web.Fleet // nil: workers are not listed
	stamp   figures.Cached[stamps]
	rates   replayRates
}

// stamps are hashes of the data that pages show.
type stamps struct {
	archive uint64
	all     uint64 // includes the broker's figures, which change continuously
}

func NewLive(a *store.Archive, b *figures.Broker, d *figures.DoneRates, f web.Fleet) *live {
	return &live{archive: a, broker: b, done: d, fleet: f, stamp: figures.Cached[stamps]{Age: livePause}}
}

// serve sends server-sent events: "changed" after each change and, if lists of the archive must be updated, also
// "archive". An event contains only a number, and pages then request their content. Therefore a slow page gets one
// event instead of a backlog, and the usual access control applies to the content. See
// https://html.spec.whatwg.org/multipage/server-sent-events.html
func (l *live) serve(c *web.Call) error {
	ctx, out := c.R.Context(), http.NewResponseController(c.W)
	// The timeouts of the server are too short for this request.
	if err := out.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	h := c.W.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // otherwise nginx would buffer the events

	say := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(2 * liveBeat)) // leaves time to complete the response
		_, err := io.WriteString(c.W, text)
		return err == nil && out.Flush() == nil
	}
	last, _ := l.stamp.Get(ctx, l.look) // before the first event, so that a page that sees the event misses no change
	if !say("retry: 3000\n\n") {
		return nil
	}
	written := time.Now()
	tick := time.NewTicker(livePause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		text := ""
		if stamp, err := l.stamp.Get(ctx, l.look); err == nil && stamp != last {
			text = fmt.Sprintf("event: changed\ndata: %016x\n\n", stamp.all)
			if stamp.archive != last.archive {
				text += fmt.Sprintf("event: archive\ndata: %016x\n\n", stamp.archive)
			}
			last = stamp
		} else if time.Since(written) >= liveBeat {
			text = ": still here\n\n"
		}
		if text == "" {
			continue
		}
		// The session may have ended in the meantime.
		if who, err := c.Guard.Identify(c.W, c.R, true); err != nil || who.Role < access.View {
			return nil
		}
		if !say(text) {
			return nil
		}
		written = time.Now()
	}
}

// look returns hashes of the current figures that pages show.
func (l *live) look(ctx context.Context) (s stamps, err error) {
	sum := fnv.New64a()
	queues, err := l.archive.Queues(ctx)
	if err != nil {
		return s, err
	}
	fmt.Fprint(sum, queues)
	running, err := l.archive.Running(ctx)
	if err != nil {
		return s, err
	}
	l.rates.observe(time.Now(), running)
	// The outcomes of a replay can arrive after its end.
	latest, _, err := l.archive.Replays(ctx, store.Page{})
	if err != nil {
		return s, err
	}
	for _, r := range append(running, latest...) {
		fmt.Fprint(sum, r.ID, r.Sent, r.Back, r.Succeeded, r.Settled, r.Retrying, r.Unknown, r.Refused, r.State)
	}
	s.archive = sum.Sum64()
	inBroker, _ := l.broker.Queues(ctx) // after an error, changes in the archive are still detected
	for _, name := range slices.Sorted(maps.Keys(inBroker)) {
		q := inBroker[name]
		fmt.Fprint(sum, name, q.Ready, q.Unacked, q.Consumers, int(q.Stats.PublishRate.Value*10))
	}
	for _, r := range l.done.Get(ctx) {
		fmt.Fprint(sum, r.Work, int(r.Done*10))
	}
	if l.fleet != nil {
		for _, w := range l.fleet.Workers() {
			fmt.Fprint(sum, w.ID, w.State, w.Silent, w.Running, w.Pauses)
			if w.Keys != nil {
				fmt.Fprint(sum, *w.Keys)
			}
			for _, h := range w.Handling {
				fmt.Fprint(sum, h.MessageID, h.Since)
				if h.Progress != nil {
					fmt.Fprint(sum, *h.Progress)
				}
			}
		}
	}
	s.all = sum.Sum64()
	return s, nil
}
