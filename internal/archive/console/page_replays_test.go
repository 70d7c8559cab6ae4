package console

import (
	"context"
	"html"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/testhook"
	"github.com/reprisemq/reprise/topology"
)

// Before a replay starts, its page shows the destinations of the messages, and the number of messages without a known
// destination.
func TestReplayFormShowsDestinations(t *testing.T) {
	c := newConsole(t, Config{Replayer: &fakeReplayer{}})
	for _, queue := range []string{"refunds", "refunds", "orders"} {
		add(t, c.cfg.Archive, func(m *failed.Message) { m.Queue, m.FailedQueue = queue, "orders.failed" })
	}
	add(t, c.cfg.Archive, func(m *failed.Message) { m.Queue, m.FailedQueue = "", "dead-letters" })
	w := ask(t, c, "GET", "/replays/new?all=true", nil)
	text := strings.Join(strings.Fields(tags.ReplaceAllString(w.Body.String(), " ")), " ")
	for _, want := range []string{"refunds orders.failed 2", "orders orders.failed 1", "unknown dead-letters 1", "1 message cannot be replayed"} {
		if !strings.Contains(text, want) {
			t.Errorf("page does not contain %q: %s", want, text)
		}
	}
}

// The page shows the exchange and the routing key of each message, and warns of messages that a replay would route
// differently from the original publication.
func TestReplayFormShowsRoutes(t *testing.T) {
	c := newConsole(t, Config{Replayer: &fakeReplayer{}, Routing: replay.Routing{Bindings: func(context.Context) (topology.Topology, error) {
		return topology.Topology{
			Exchanges: []topology.Exchange{{Name: "shop", Kind: topology.Topic}},
			Bindings: []topology.Binding{
				{Exchange: "shop", Queue: "orders", RoutingKey: "order.*"},
				{Exchange: "shop", Queue: "refunds", RoutingKey: "refund.*"},
				{Exchange: "shop", Queue: "audit", RoutingKey: "refund.*"},
			},
		}, nil
	}}})
	for _, m := range [][2]string{{"orders", "order.new"}, {"orders", "order.late"}, {"refunds", "refund.new"}} {
		add(t, c.cfg.Archive, func(x *failed.Message) {
			x.Queue, x.FailedQueue, x.Exchange, x.RoutingKey = m[0], "shop.failed", "shop", m[1]
		})
	}
	w := ask(t, c, "GET", "/replays/new?all=true", nil)
	text := html.UnescapeString(strings.Join(strings.Fields(tags.ReplaceAllString(w.Body.String(), " ")), " "))
	for _, want := range []string{
		"orders exchange shop, original routing keys shop.failed 2",
		"refunds shop.failed 1",
		"By queue name only: these messages stay failed unless you permit it below.",
		`1 to refunds: consumers see the routing key “refunds”, not the original key`,
		`(exchange “shop” also routes the original key to “audit”)`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("page does not contain %q: %s", want, text)
		}
	}
}

// The page of a replay lists the unsent messages with the reasons, and offers a replay of the messages that are still
// in state failed.
func TestReplayPageListsUnsentMessages(t *testing.T) {
	c := newConsole(t, Config{Replayer: &fakeReplayer{}})
	a := c.cfg.Archive
	begin := func(f failed.Filter) failed.ReplayID {
		r, err := a.BeginReplay(t.Context(), failed.Plan{Filter: f}, "ann")
		if err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	refuse := func(r failed.ReplayID, id failed.ID, why string) {
		if err := testhook.Refused(t.Context(), a, int64(r), int64(id), why); err != nil {
			t.Fatal(err)
		}
	}
	one, two, three := add(t, a, nil), add(t, a, nil), add(t, a, nil)
	first := begin(failed.Filter{IDs: []failed.ID{one, two}})
	refuse(first, one, "its type is too long")
	refuse(first, two, "its headers are too large")
	other := begin(failed.Filter{IDs: []failed.ID{one, three}})
	refuse(other, three, "nobody knows where it failed")
	if err := testhook.Sent(t.Context(), a, int64(other), int64(one)); err != nil {
		t.Fatal(err)
	}

	page := ask(t, c, "GET", "/replays/1", nil).Body.String()
	for text, want := range map[string]bool{
		"its type is too long": true, "its headers are too large": true, "nobody knows where it failed": false,
		`href="/replays/new?refused_by=1&amp;state=failed"`: true, "Replay 1 again": true, `href="/messages?refused_by=1&amp;state=all"`: true,
	} {
		if strings.Contains(page, text) != want {
			t.Errorf("page contains %q: %v: %s", text, !want, page)
		}
	}
	if list := ask(t, c, "GET", "/messages?refused_by=1&state=all", nil).Body.String(); !strings.Contains(list, "Not sent: its type is too long") || strings.Contains(list, "nobody knows where") {
		t.Errorf("list of unsent messages: got %s, want only the reason of the selected replay", list)
	}
	if form := ask(t, c, "GET", "/replays/new?refused_by=1", nil).Body.String(); !strings.Contains(form, "Replay 1 message") {
		t.Errorf("replay form: got %s, want \"Replay 1 message\"", form)
	}
	begin(failed.Filter{IDs: []failed.ID{two}}) // after this, none of the unsent messages is in state failed
	if page := ask(t, c, "GET", "/replays/1", nil).Body.String(); strings.Contains(page, "/replays/new") {
		t.Errorf("page offers to replay zero messages: %s", page)
	}
}

// The page of a message shows the reason why the message was not sent, and the page of the replay shows the number of
// unsent messages.
func TestPagesShowUnsentMessages(t *testing.T) {
	c := newConsole(t, Config{Replayer: &fakeReplayer{}})
	id := add(t, c.cfg.Archive, nil)
	r, err := c.cfg.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if err := testhook.Refused(t.Context(), c.cfg.Archive, int64(r.ID), int64(id), "it is <b>larger</b> than 16 MiB"); err != nil {
		t.Fatal(err)
	}
	if err := c.cfg.Archive.EndReplay(t.Context(), r.ID, failed.ReplayDone, "", "ann"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/messages/1": "could not send this message:</strong> it is &lt;b&gt;larger&lt;/b&gt; than 16 MiB",
		"/replays/1":  ">1</a> <small>stay failed",
		"/replays":    "done, 1 not sent",
	} {
		if w := ask(t, c, "GET", path, nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s does not contain %q: got status %d, want 200; body %s", path, want, w.Code, w.Body)
		}
	}
}

// The form proposes a canary for a replay of several messages. The page of the replay shows the result of the canary,
// and only outcomes that at least one message has.
func TestPagesShowCanary(t *testing.T) {
	c := newConsole(t, Config{Replayer: &fakeReplayer{}})
	a := c.cfg.Archive
	add(t, a, nil)
	const proposed = `value="1m" selected`
	if form := ask(t, c, "GET", "/replays/new?id=1", nil).Body.String(); strings.Contains(form, proposed) {
		t.Error("the form proposes a canary for 1 message")
	}
	add(t, a, nil)
	add(t, a, nil)
	if form := ask(t, c, "GET", "/replays/new?all=true", nil).Body.String(); !strings.Contains(form, proposed) {
		t.Errorf("the form does not propose a canary for 3 messages: %s", form)
	}
	r, err := a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}, Canary: time.Minute}, "ann")
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range []string{"waiting for its outcome", "passed"} {
		if err := testhook.Sent(t.Context(), a, int64(r.ID), int64(id+1)); err != nil {
			t.Fatal(err)
		}
		page := ask(t, c, "GET", "/replays/1", nil).Body.String()
		if !strings.Contains(page, "<dt>Canary</dt><dd>"+want) || strings.Contains(page, "<dt>Settled") {
			t.Errorf("page after %d sent messages does not show that the canary is %q, or shows outcomes of 0 messages: %s", id+1, want, page)
		}
	}
}

// If the canary stops a replay, the page of the replay shows the error and links to the message.
func TestPageShowsReplayStoppedByCanary(t *testing.T) {
	for why, want := range map[string]string{
		"the canary failed again: no such <customer>":           "The canary stopped the replay: message 1 failed again: no such <customer>. Unsent messages stay failed.",
		"a message failed its first attempt: no such shard: 7":  "The canary stopped the replay: message 1 failed its first attempt: no such shard: 7. Unsent messages stay failed.",
		"the canary is unproven: it has no outcome after 1m30s": "The canary stopped the replay: message 1 is unproven, because it has no outcome after 1 min 30 s. A worker that consumes the queue and reports outcomes would prove it: check whether the workers run. To send the rest without proof, start a replay without a canary. Unsent messages stay failed.",
	} {
		c := newConsole(t, Config{Replayer: &fakeReplayer{}})
		a := c.cfg.Archive
		add(t, a, nil)
		add(t, a, nil)
		r, err := a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}, Canary: 90 * time.Second}, "ann")
		if err != nil {
			t.Fatal(err)
		}
		if err := testhook.Sent(t.Context(), a, int64(r.ID), 1); err != nil {
			t.Fatal(err)
		}
		if page := ask(t, c, "GET", "/replays/1", nil).Body.String(); !strings.Contains(page, "Cancel replay") {
			t.Error("page of a running replay does not offer to cancel it")
		}
		if err := a.EndReplay(t.Context(), r.ID, failed.ReplayStopped, why, "policy:canary"); err != nil {
			t.Fatal(err)
		}
		page := ask(t, c, "GET", "/replays/1", nil).Body.String()
		text := html.UnescapeString(strings.Join(strings.Fields(tags.ReplaceAllString(page, "")), " "))
		if !strings.Contains(text, want) || !strings.Contains(page, `<a href="/messages/1">message 1</a>`) {
			t.Errorf("%s: page contains %s", why, text)
		}
		if strings.Contains(page, "Cancel replay") {
			t.Errorf("%s: page offers to cancel the replay", why)
		}
		if !strings.Contains(text, "Replay 1…") {
			t.Errorf("%s: page does not offer to replay the unsent message: %s", why, text)
		}
		if form := ask(t, c, "GET", linkTo(t, page, "/replays/new"), nil).Body.String(); !strings.Contains(form, "Replay 1 message") {
			t.Errorf("%s: got form %s, want \"Replay 1 message\"", why, form)
		}
	}
}
