package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/outbox"
)

// Box returns the outbox, or a failure if the console has none.
func (c *Call) Box() (*outbox.Box, error) {
	if c.Outbox == nil {
		return nil, &fault.Failure{
			Status: http.StatusConflict, Text: "this console has no outbox",
			Advice: "set outbox: in the file of reprise up, pass --outbox to reprise console, or set Outbox in archive.Config",
		}
	}
	box := c.Outbox()
	if box == nil {
		return nil, outboxUnavailable("the outbox is not open yet")
	}
	return box, nil
}

func outboxUnavailable(text string) error {
	return &fault.Failure{Status: http.StatusServiceUnavailable, Text: text, Advice: "see the log of the process for the cause, and try again", RetryAfter: 5}
}

// ofOutbox converts the error of an unavailable database into a failure with advice for the visitor.
func ofOutbox(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrUnavailable):
		return outboxUnavailable(strings.TrimPrefix(err.Error(), "outbox: "))
	case errors.Is(err, reprise.ErrInvalidMessage):
		return &fault.Failure{Status: http.StatusUnprocessableEntity, Text: strings.TrimPrefix(err.Error(), "outbox: "), Advice: "the message was not stored: correct it"}
	}
	return err
}

// defaultScheduled is the default number of messages on a page.
const defaultScheduled = 50

// Scheduled returns a page of the outbox.
func (c *Call) Scheduled(f api.ScheduledFilter, p store.Page) (page api.ScheduledPage, err error) {
	box, err := c.Box()
	if err != nil {
		return page, err
	}
	size := cmp.Or(p.Size, defaultScheduled)
	query := f.Filter()
	query.Limit = size + 1
	if query.After, err = api.AfterScheduled(p.After); err != nil {
		return page, err
	}
	rows, err := box.List(c.R.Context(), query)
	if len(rows) > size {
		rows = rows[:size]
		page.Next = api.ScheduledCursor(rows[size-1])
	}
	page.Messages = []api.Scheduled{}
	for _, r := range rows {
		page.Messages = append(page.Messages, api.ScheduledOf(r))
	}
	return page, ofOutbox(err)
}

// CountScheduled returns the number of messages of an act, and the highest of their IDs.
func (c *Call) CountScheduled(f api.ScheduledFilter) (n int, through int64, err error) {
	box, err := c.Box()
	if err != nil {
		return 0, 0, err
	}
	n, through, err = box.Count(c.R.Context(), f.Filter())
	return n, through, ofOutbox(err)
}

// OneScheduled returns a message of the outbox as the visitor may see it.
func (c *Call) OneScheduled(id int64) (m api.ScheduledMessage, err error) {
	box, err := c.Box()
	if err != nil {
		return m, err
	}
	r, err := box.Get(c.R.Context(), id)
	if err != nil {
		return m, ofOutbox(err)
	}
	if r == nil {
		return m, &fault.Failure{Status: http.StatusNotFound, Text: fmt.Sprintf("message %d is not in the outbox", id), Advice: "it has left, or it was canceled; see the list"}
	}
	return api.ScheduledMessageOf(r, c.Secrets()), nil
}

// OutboxStatus returns the state of the outbox.
func (c *Call) OutboxStatus() (s api.OutboxStatus, err error) {
	box, err := c.Box()
	if err != nil {
		return s, err
	}
	state, err := box.Status(c.R.Context())
	return api.OutboxStatus{Lag: api.Duration(state.Lag.Truncate(time.Millisecond)), Next: state.Next, Relay: state.Relay}, ofOutbox(err)
}

// ActOnScheduled cancels messages of the outbox, or moves them. It records the act in the audit log before and after it.
func (c *Call) ActOnScheduled(a api.ScheduledAct, move bool) (done api.ScheduledDone, err error) {
	box, err := c.Box()
	if err != nil {
		return done, err
	}
	f := a.Filter.Filter()
	f.Limit, f.Through = int(cmp.Or(a.AtMost, api.MaxScheduledAct)), a.Through
	if f.Through == 0 {
		if _, f.Through, err = box.Count(c.R.Context(), f); err != nil || f.Through == 0 {
			return done, ofOutbox(err)
		}
	}
	verb, details, to := "cancel scheduled", scheduledDetails(a), a.At
	if move {
		verb = "move scheduled"
		if to.IsZero() {
			to = c.Clock().Add(time.Duration(a.In))
		}
		details["to"] = to.UTC().Format(time.RFC3339)
		if a.At.IsZero() && a.In == 0 {
			verb, to = "send scheduled now", time.Time{}
			delete(details, "to")
		}
	}
	subject := ""
	if len(a.Filter.IDs) == 1 {
		subject = fmt.Sprintf("scheduled/%d", a.Filter.IDs[0])
	}
	if err := c.Archive.Record(c.R.Context(), c.Who.Actor, verb, subject, details); err != nil {
		return done, err // without an entry in the audit log, the act must not begin
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.R.Context()), commandTimeout)
	defer cancel()
	var r outbox.Result
	if move {
		r, err = box.Move(ctx, f, to)
	} else {
		r, err = box.Cancel(ctx, f)
	}
	done = api.ScheduledDone{Selected: int64(r.Done + r.Attempted + r.TooLate), Done: int64(r.Done), Attempted: int64(r.Attempted), TooLate: int64(r.TooLate)}
	result := map[string]any{"done": r.Done, "attempted": r.Attempted, "too_late": r.TooLate}
	if err != nil {
		result = map[string]any{"error": err.Error()}
	}
	longer, stop := background.Grace(c.R.Context(), background.NoteGrace)
	defer stop()
	return done, errors.Join(ofOutbox(err), c.Archive.Record(longer, c.Who.Actor, verb+" ended", subject, result))
}

func scheduledDetails(a api.ScheduledAct) map[string]any {
	d := map[string]any{}
	for name, values := range a.Filter.Values() {
		d[name] = values[0]
	}
	if len(a.Filter.IDs) > 0 {
		delete(d, "id")
		d["ids"] = len(a.Filter.IDs)
	}
	if a.All {
		d["all"] = true
	}
	if a.AtMost > 0 {
		d["messages"] = a.AtMost
	}
	if a.Reason != "" {
		d["reason"] = a.Reason
	}
	return d
}

// MaxOccurrences is the maximum number of occurrences of an entry in a response.
const MaxOccurrences = 100

// Cron returns the periodic messages, each with its next n occurrences.
func (c *Call) Cron(n int) (list api.Cron, err error) {
	box, err := c.Box()
	if err != nil {
		return list, err
	}
	entries, err := box.Entries(c.R.Context())
	list.Entries = []api.CronEntry{}
	for _, e := range entries {
		list.Entries = append(list.Entries, api.CronEntryOf(e, n, c.Clock()))
	}
	return list, ofOutbox(err)
}

// RunCron makes a periodic message occur now.
func (c *Call) RunCron(name api.CronName) (api.CronName, error) {
	return c.withCron(name, "run periodic", (*outbox.Box).Occur)
}

// RemoveCron removes a periodic message from the list.
func (c *Call) RemoveCron(name api.CronName) (api.CronName, error) {
	return c.withCron(name, "remove periodic", (*outbox.Box).Forget)
}

// withCron acts on a periodic message, and records the act in the audit log.
func (c *Call) withCron(name api.CronName, verb string, act func(*outbox.Box, context.Context, string, string) error) (api.CronName, error) {
	box, err := c.Box()
	if err != nil {
		return name, err
	}
	if name.App == "" {
		entries, err := box.Entries(c.R.Context())
		if err != nil {
			return name, ofOutbox(err)
		}
		for _, e := range entries {
			switch {
			case e.Name != name.Name:
			case name.App != "":
				return name, &fault.Failure{Status: http.StatusConflict, Text: fmt.Sprintf("apps %s and %s have an entry %s", name.App, e.App, brief.Quoted(name.Name)), Advice: "send the app as well"}
			default:
				name.App = e.App
			}
		}
	}
	missing := &fault.Failure{Status: http.StatusNotFound, Text: "periodic message " + brief.Quoted(name.Name) + " not found", Advice: "see the list of periodic messages"}
	if name.App == "" {
		return name, missing
	}
	if err := act(box, c.R.Context(), name.App, name.Name); err != nil {
		if errors.Is(err, outbox.ErrNoEntry) {
			err = missing
		}
		return name, ofOutbox(err)
	}
	longer, stop := background.Grace(c.R.Context(), background.NoteGrace)
	defer stop()
	return name, c.Archive.Record(longer, c.Who.Actor, verb, "", map[string]any{"app": name.App, "name": name.Name})
}

// schedule inserts a message into the outbox. It sets the fields of the result, and adds details for the audit log.
func (c *Call) schedule(ctx context.Context, box *outbox.Box, m *reprise.Message, p api.Publish, details map[string]any) (result api.Published, err error) {
	if !p.At.IsZero() {
		details["at"] = p.At.UTC() // encoding/json refuses offsets of 24 hours, which it reads
	}
	for name, value := range map[string]string{"in": p.In.String(), "order_key": string(p.OrderKey), "unique": string(p.Unique)} {
		if value != "" && value != "0s" {
			details[name] = value
		}
	}
	scheduled := &outbox.Message{
		Message: *m, At: p.At, In: time.Duration(p.In), Key: string(p.OrderKey), Unique: string(p.Unique), UniqueFor: time.Duration(p.UniqueFor),
	}
	if err := box.Schedule(ctx, scheduled); err != nil {
		return result, ofOutbox(err)
	}
	result = api.Published{MessageID: api.Text(scheduled.MessageID), Due: c.Clock(), Duplicate: scheduled.Duplicate}
	if rows, err := box.List(ctx, outbox.Filter{MessageID: scheduled.MessageID}); err == nil && len(rows) > 0 { // otherwise, it has left
		result.Due = rows[len(rows)-1].Due
	}
	details["message_id"], details["due"] = result.MessageID, result.Due
	return result, nil
}
