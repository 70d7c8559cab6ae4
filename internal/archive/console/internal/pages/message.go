package pages

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/console/internal/editor"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// message shows the history and the content of a message.
func (p *Pages) message(c *web.Call, id failed.ID) error {
	m, hidden, err := c.Message(id)
	if err != nil {
		return err
	}
	ctx := c.R.Context()
	edits, err := c.Archive.Edits(ctx, m.ID)
	if err != nil {
		return err
	}
	var replay *failed.Replay
	if m.ReplayedBy != 0 {
		if replay, err = c.Archive.Replay(ctx, m.ReplayedBy); err != nil && !errors.Is(err, failed.ErrNotFound) {
			return err
		}
	}
	var again *failed.Summary
	if m.Outcome == failed.OutcomeFailedAgain {
		if again, err = laterFailure(c, m); err != nil {
			return err
		}
	}
	acts, _, err := c.Archive.Acts(ctx, store.ActFilter{Message: m.ID}, store.Page{Size: 100})
	if err != nil {
		return err
	}
	data := struct {
		M           *failed.Message
		Journey     []step
		Body        show.BodyView
		Own, Theirs []show.HeaderRow // headers of the application; headers of Reprise and of the broker
		Properties  []pair
		Edit        *editor.EditDiff
		Hidden      bool   // the message contains secrets that the visitor may not see
		Trace       string // URL of the trace; "": no trace
		Erase       template.URL
	}{M: m, Journey: journey(m, edits, replay, again, acts), Hidden: hidden}
	current := m.Current()
	data.Body = show.ViewBody(current)
	data.Own, data.Theirs = show.SplitHeaders(current.Headers)
	data.Properties = properties(current.Properties)
	data.Trace = traceURL(p.TraceURL, current.Headers)
	if erasable(m.State) && !m.Erased {
		data.Erase = web.HrefMessages("/erase", failed.Filter{IDs: []failed.ID{m.ID}})
	}
	if m.Edited != nil {
		d := editor.Compare(m.Content, *m.Edited)
		data.Edit = &d
	}
	title := fmt.Sprintf("Message %d", m.ID)
	return render(c, http.StatusOK, "message", page{Title: title, Nav: "groups", Flash: readFlash(c)}, data)
}

// traceparent matches the header of W3C Trace Context: version, trace ID, span ID, flags. Later versions may have more
// fields. https://www.w3.org/TR/trace-context/#traceparent-header
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-|$)`)

// traceURL returns the URL of a message's trace, or "" if the message has no trace. The parameter form is
// Config.TraceURL.
func traceURL(form string, headers topology.Table) string {
	text, _ := headers["traceparent"].(string)
	ids := traceparent.FindStringSubmatch(text)
	if form == "" || ids == nil || strings.Trim(ids[1], "0") == "" {
		return ""
	}
	return strings.NewReplacer("{trace_id}", ids[1], "{span_id}", ids[2]).Replace(form)
}

// body sends the body of a message as a download, so that browsers do not display the body.
func (p *Pages) body(c *web.Call, id failed.ID) error {
	return c.SendBody(id, ".bin")
}

// step is an event in the history of a message.
type step struct {
	Time    time.Time // zero: unknown
	Mark    string    // name of the icon
	Tone    string    // "bad", "good", "act" or ""
	What    string
	Details []string
	Text    string // error or reason
	Href    string // URL of a page with details
	Linked  string
}

// laterFailure returns the message that was archived after an unsuccessful replay of m, or nil if it is not among the
// newest 100 matches.
func laterFailure(c *web.Call, m *failed.Message) (*failed.Summary, error) {
	f := failed.Filter{Replay: m.ReplayedBy, Text: m.Properties.MessageID}
	if f.Validate() != nil { // a search needs a word, and the message ID contains none
		f.Text = ""
	}
	list, _, err := c.Archive.List(c.R.Context(), f, store.Page{Size: 100})
	if i := slices.IndexFunc(list, func(s failed.Summary) bool { return s.BackOf == m.ID }); i >= 0 {
		return &list[i], err
	}
	return nil, err
}

// journey returns the history of a message since its publication. The parameter again is the message that failed again
// after the replay, or nil. The argument acts contains the acts that discarded, restored, reverted, erased or purged the message.
func journey(m *failed.Message, edits []store.Revision, replay *failed.Replay, again *failed.Summary, acts []store.Act) []step {
	var steps []step
	add := func(s step) { steps = append(steps, s) }
	if t := m.Properties.Timestamp; !t.IsZero() {
		add(step{Time: t, Mark: "in", What: "Published", Details: published(m)})
	} else if m.Exchange != "" || m.RoutingKey != "" {
		add(step{Mark: "in", What: "Published", Details: published(m)})
	}
	if m.Back != 0 {
		s := step{Mark: "replay", Tone: "act", What: "Replayed", Href: fmt.Sprintf("/replays/%d", m.Back), Linked: fmt.Sprintf("Replay %d", m.Back)}
		if m.BackOf != 0 {
			s.Href, s.Linked = messagePath(m.BackOf), fmt.Sprintf("Earlier failure: message %d", m.BackOf)
		}
		add(s)
	}
	for i, e := range m.Errors {
		if i == 1 && m.ErrorsDropped > 0 {
			add(step{Mark: "dot", What: show.Plural(int64(m.ErrorsDropped), "more attempt") + " failed", Details: []string{"errors not kept"}})
		}
		s := step{Time: e.Time, Mark: "failed", Tone: "bad", What: "Attempt failed", Text: brief.Visible(e.Error)}
		if e.Attempt > 0 {
			s.What = fmt.Sprintf("Attempt %d failed", e.Attempt)
		}
		switch {
		case e.Error == m.Error: // the page shows this error separately
			s.Text = ""
		case i > 0 && e.Error == m.Errors[i-1].Error:
			s.Text, s.Details = "", append(s.Details, "same error")
		}
		if e.Host != "" {
			s.Details = append(s.Details, "on "+brief.Visible(e.Host))
		}
		if e.Duration > 0 {
			s.Details = append(s.Details, "after "+unbroken(runTime(e.Duration)))
		}
		if i > 0 && !m.Errors[i-1].Time.IsZero() && !e.Time.IsZero() && m.Errors[i-1].Attempt == e.Attempt-1 {
			if wait := e.Time.Sub(m.Errors[i-1].Time); wait > time.Second {
				s.Details = append(s.Details, unbroken(show.Short(wait)+" later"))
			}
		}
		add(s)
	}
	parked := step{Time: m.LastFailed, Mark: "stopped", Tone: "bad", What: "Parked", Details: []string{"in " + brief.Visible(m.FailedQueue)}}
	add(parked)
	add(step{Time: m.Archived, Mark: "dot", What: "Archived"})
	archived := len(steps) // the later steps have the clock of the archive
	for _, r := range edits {
		details := []string{"by " + brief.Visible(string(r.Actor))}
		if r.Replay != 0 {
			details = append(details, fmt.Sprintf("in replay %d", r.Replay))
		}
		add(step{
			Time: r.Time, Mark: "edit", Tone: "act", What: fmt.Sprintf("Edited, revision %d", r.Number), Details: details,
			Href: fmt.Sprintf("%s/revisions/%d", messagePath(m.ID), r.Number), Linked: "Changes",
		})
	}
	known := map[string]bool{}
	for _, a := range acts {
		s, ok := actSteps[a.Verb]
		if !ok { // edits are listed with their revisions
			continue
		}
		known[a.Verb] = true
		s.Time, s.Details = a.Time, []string{"by " + brief.Visible(string(a.Actor)), fmt.Sprint("act ", a.ID)}
		if reason, ok := a.Details["reason"].(string); ok {
			s.Text = brief.Visible(reason)
		}
		add(s)
	}
	if len(edits) > 0 && m.Edited == nil && !known["revert"] {
		add(step{Mark: "edit", Tone: "act", What: "Edit reverted"})
	}
	if replay != nil {
		s := step{Time: replay.Begun, Mark: "replay", Tone: "act", What: "Replay started", Details: []string{"by " + brief.Visible(string(replay.Actor))}, Href: fmt.Sprintf("/replays/%d", replay.ID), Linked: fmt.Sprintf("Replay %d", replay.ID)}
		add(s)
		if m.State == failed.Replayed {
			add(step{Time: replay.Ended, Mark: "replay", Tone: "act", What: "Replayed", Details: []string{"confirmed by the broker"}})
		}
		if s, ok := outcomeSteps[m.Outcome]; ok {
			if m.WhyUnknown != "" {
				s.Details = []string{m.WhyUnknown}
			}
			if m.Outcome == failed.OutcomeFailedAgain {
				s.Href, s.Linked = string(web.HrefMessages("/messages", failed.Filter{Replay: replay.ID})), "Later failures"
			}
			if again != nil {
				s.Time, s.Href, s.Linked = again.LastFailed, messagePath(again.ID), fmt.Sprintf("Later failure: message %d", again.ID)
			}
			add(s)
		}
	}
	if m.State == failed.Discarded && !known["discard"] && !known["purge queue"] {
		add(step{Mark: "discarded", What: "Discarded", Text: brief.Visible(m.Discarded)})
	}
	slices.SortStableFunc(steps[archived:], func(a, b step) int {
		if a.Time.IsZero() || b.Time.IsZero() {
			return 0
		}
		return a.Time.Compare(b.Time)
	})
	return steps
}

// actSteps contains the step of a journey for each verb of an act.
var actSteps = map[string]step{
	"discard": {Mark: "discarded", What: "Discarded"},
	"restore": {Mark: "replay", Tone: "act", What: "Restored"},
	"revert":  {Mark: "edit", Tone: "act", What: "Edit reverted"},
	"erase":   {Mark: "discarded", What: "Erased"},

	"purge queue": {Mark: "discarded", What: "Purged from its queue"},
}

// outcomeSteps contains the last step of a journey for each outcome of a replay.
var outcomeSteps = map[failed.Outcome]step{
	failed.OutcomePending:     {Mark: "dot", What: "No outcome yet"},
	failed.OutcomeRetrying:    {Mark: "replaying", Tone: "act", What: "Retrying", Details: []string{"attempt failed"}},
	failed.OutcomeSucceeded:   {Mark: "replayed", Tone: "good", What: "Succeeded", Details: []string{"reported by the worker"}},
	failed.OutcomeFailedAgain: {Mark: "failed", Tone: "bad", What: "Failed again"},
	failed.OutcomeSettled:     {Mark: "replayed", What: "Settled", Details: []string{"no report; the queues were found empty"}},
	failed.OutcomeUnknown:     {Mark: "dot", What: "Outcome unknown"},
}

// published describes the exchange and the routing key of a message.
func published(m *failed.Message) []string {
	exchange := "the default exchange"
	if m.Exchange != "" {
		exchange = brief.Visible(m.Exchange)
	}
	if m.RoutingKey == "" {
		return []string{"to " + exchange}
	}
	return []string{"to " + exchange, "key " + brief.Visible(m.RoutingKey)}
}

// unbroken replaces the spaces in s with non-breaking spaces.
func unbroken(s string) string { return strings.ReplaceAll(s, " ", "\u00a0") }

// runTime formats the duration of an attempt.
func runTime(d time.Duration) string {
	if d < time.Second {
		return show.Short(d)
	}
	if d < time.Minute {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	return show.Exactly(d.Round(time.Second))
}

// properties returns the properties that are set, with their labels.
func properties(p failed.Properties) []pair {
	key := "Delivery key"
	if p.Exchange == "" { // the key is the name of the failed queue
		key = "Archived from"
	}
	all := []pair{
		{"Delivery exchange", p.Exchange},
		{key, p.RoutingKey},
		{"Content type", p.ContentType},
		{"Content encoding", p.ContentEncoding},
		{"Message id", p.MessageID},
		{"Correlation id", p.CorrelationID},
		{"Type", p.Type},
		{"Reply to", p.ReplyTo},
		{"Expiration", p.Expiration},
		{"User id", p.UserID},
		{"App id", p.AppID},
	}
	if p.Priority != 0 || p.Zero.Has(reprise.PropertyPriority) {
		all = append(all, pair{"Priority", fmt.Sprint(p.Priority)})
	}
	if !p.Timestamp.IsZero() {
		all = append(all, pair{"Timestamp", show.Exact(p.Timestamp)})
	}
	all = slices.DeleteFunc(all, func(f pair) bool { return f.Value == "" })
	for i := range all {
		all[i].Value = brief.Visible(all[i].Value)
	}
	return all
}

// revision shows the content of a message after one of its edits.
func (p *Pages) revision(c *web.Call, id failed.ID) error {
	number, err := pathInt(c, "number")
	if err != nil {
		return err
	}
	m, _, err := c.Message(id)
	if err != nil {
		return err
	}
	r, hidden, err := c.Revision(m.ID, int(number))
	if err != nil {
		return err
	}
	data := struct {
		M      *failed.Message
		R      *store.Revision
		Edit   editor.EditDiff
		Body   show.BodyView
		Hidden bool // the message contains secrets that the visitor may not see
	}{m, r, editor.Compare(m.Content, r.Content), show.ViewBody(r.Content), hidden}
	title := fmt.Sprintf("Message %d, revision %d", m.ID, r.Number)
	return render(c, http.StatusOK, "revision", page{Title: title, Nav: "groups"}, data)
}
