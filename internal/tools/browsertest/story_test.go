package browsertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/topology"
)

var storyFailures = flag.Int("story.failures", 60, "failures in the archive of TestOperatorFixesBulkFailure; make story has 20000")

// Durations of an operator's actions in seconds, from the Keystroke-Level Model: Card, Moran, Newell, "The keystroke-level model
// for user performance time with interactive systems", Communications of the ACM 23 (7), 1980.
const (
	thinking = 1.35 // before each click
	pointing = 1.1
	pressing = 0.2
	typing   = 0.28 // for each key
)

// stopwatch counts the actions of the operator and measures the response times of the pages.
type stopwatch struct {
	*testing.T
	b      *Browser
	clicks int
	keys   int
	pages  time.Duration
}

// click clicks a link or button, and waits for the next page.
func (s *stopwatch) click(text string) {
	s.Helper()
	begun := time.Now()
	click(s.T, s.b, text)
	s.step(begun, "click "+text)
}

// press clicks an element of the page.
func (s *stopwatch) press(what, selector string) {
	s.Helper()
	begun := time.Now()
	do(s.T, s.b, chromedp.Click(chromedp.CSS(selector)))
	s.step(begun, "click "+what)
}

// choose selects an option of a select element with two clicks.
func (s *stopwatch) choose(id, option string) {
	s.Helper()
	begun := time.Now()
	do(s.T, s.b, chromedp.SetValue(chromedp.ID(id), option))
	s.clicks++
	s.step(begun, "choose "+option)
}

// write clicks a field and types a text.
func (s *stopwatch) write(id, text string) {
	s.Helper()
	begun := time.Now()
	do(s.T, s.b, chromedp.SendKeys(chromedp.ID(id), text))
	s.keys += len(text)
	s.step(begun, "type "+text)
}

func (s *stopwatch) step(begun time.Time, what string) {
	s.Helper()
	took := time.Since(begun)
	s.clicks++
	s.pages += took
	s.Logf("%5.1f s  %5.2f s for the page  %2d clicks  %s", s.person(), took.Seconds(), s.clicks, what)
}

// person returns the duration of the operator's actions, in seconds.
func (s *stopwatch) person() float64 {
	return float64(s.clicks)*(thinking+pointing+pressing) + float64(s.keys)*typing
}

// An operator finds the cause of most failures, edits the messages in bulk, and replays them with a canary and a ramp. The console
// reports that all of them succeeded.
func TestOperatorFixesBulkFailure(t *testing.T) {
	b := newBrowser(t)
	var handled atomic.Int64
	shop := newShop(t, ShopConfig{Handlers: map[string]reprise.Handler{
		"payments": reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if !strings.Contains(string(m.Body), `"currency":"EUR"`) {
				return errors.New("currency EURO is unknown")
			}
			handled.Add(1)
			return nil
		}),
	}})
	wrong := failPayments(t, shop, *storyFailures)

	s := &stopwatch{T: t, b: b}
	do(t, b, chromedp.Navigate(shop.URL))
	shows(t, b, "main", "currency EURO is unknown")
	s.click("currency EURO is unknown") // find
	shows(t, b, "h1", "currency EURO is unknown")
	s.press("the first message", "#rows a.row") // understand
	shows(t, b, "pre", `"currency": "EURO"`)
	s.press("the group", `main a[href^="/groups/"]`)
	s.click("Replay all…")
	s.press("Edit all messages", "details summary")
	s.write("f-patch", `[{"op":"replace","path":"/currency","value":"EUR"}]`)
	s.click("Replay " + grouped(wrong)) // shows the preview
	shows(t, b, "#changes .del", `"EURO"`)
	shows(t, b, "#changes .add", `"EUR"`)
	s.choose("f-canary", "30s")
	s.click("Edit " + grouped(wrong) + " of " + grouped(wrong) + " and replay")
	shows(t, b, "h1", "Replay 1")
	shows(t, b, "#now", "ramp up; canary, up to 30 s; edited: JSON Patch")
	shows(t, b, "#now", "Succeeded\n"+grouped(wrong)) // all outcomes are successes
	shows(t, b, "#now", "done")

	t.Logf("%d failures, %d corrected: %d clicks, %.0f s for the operator, %.1f s for the pages", *storyFailures, wrong, s.clicks, s.person(), s.pages.Seconds())
	if s.clicks > 15 {
		t.Errorf("got %d clicks, want at most 15", s.clicks)
	}
	if s.person() > 60 {
		t.Errorf("the operator took %.0f s, want at most 60", s.person())
	}
	if n := handled.Load(); n != int64(wrong) {
		t.Errorf("worker handled %d messages, want %d", n, wrong)
	}
	left, err := shop.Archive.Count(t.Context(), failed.Filter{States: []failed.State{failed.Failed}})
	if err != nil || left.N != int64(*storyFailures-wrong) {
		t.Errorf("failed messages: got %d, want %d (%v)", left.N, *storyFailures-wrong, err)
	}
	checkProblems(t, b)
}

// failPayments adds failures with three causes, and returns the number of failures with the first cause.
func failPayments(t *testing.T, shop *Shop, n int) (first int) {
	t.Helper()
	var messages []failed.Message
	for i := range n {
		m := failed.Message{
			Queue: "payments", FailedQueue: topology.FailedQueue("payments"), Attempts: 1, LastFailed: time.Now().Add(-time.Hour),
			Content: failed.Content{Properties: failed.Properties{MessageID: fmt.Sprint("payment-", i), ContentType: "application/json"}},
		}
		switch {
		case i%10 < 6:
			first++
			m.Error, m.Body = "currency EURO is unknown", fmt.Appendf(nil, `{"payment":%d,"amount":"9.99","currency":"EURO"}`, i)
		case i%10 < 9:
			m.Error, m.Body = fmt.Sprintf("charging payment %d: dial tcp 10.0.0.7:443: i/o timeout", i), fmt.Appendf(nil, `{"payment":%d,"amount":"9.99","currency":"EUR"}`, i)
		default:
			m.Error, m.Body = fmt.Sprintf("card of payment %d has expired", i), fmt.Appendf(nil, `{"payment":%d,"amount":"0.99","currency":"EUR"}`, i)
		}
		m.Errors = []reprise.AttemptError{{Attempt: 1, Time: m.LastFailed, Error: m.Error, Host: "worker-3"}}
		messages = append(messages, m)
	}
	if _, err := shop.Archive.Add(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
	return first
}

// grouped formats a number with commas between groups of three digits, as the pages do.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
