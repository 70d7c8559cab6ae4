package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/outbox"
)

// Scheduled is a message of the outbox that has not left.
type Scheduled struct {
	ID  int64     `json:"id"`
	Due time.Time `json:"due"`
	Target
	MessageID Text `json:"message_id"`
	OrderKey  Text `json:"order_key,omitempty"` // messages with the same key leave one after the other
	Unique    Text `json:"unique,omitempty"`    // key that only this message has

	Attempts int       `json:"attempts"`          // failed attempts
	RetryAt  time.Time `json:"retry_at,omitzero"` // time of the next attempt, after a failed one
	Error    Text      `json:"error,omitempty"`   // of the last attempt
}

// ScheduledOf converts a row.
func ScheduledOf(r outbox.Row) Scheduled {
	return Scheduled{
		r.Seq, r.Due, Target{Text(r.Exchange), Text(r.RoutingKey)}, Text(r.MessageID), Text(r.Key), Text(r.Unique), r.Attempts, r.RetryAt, Text(r.Error),
	}
}

// ScheduledMessage is a message of the outbox with its content.
type ScheduledMessage struct {
	Scheduled
	Content
}

// ScheduledMessageOf converts a row, without the secrets that the rules select.
func ScheduledMessageOf(r *outbox.Row, secrets []failed.Rule) ScheduledMessage {
	content := failed.ContentOf(&reprise.Delivery{Message: r.Message}).Redact(secrets)
	return ScheduledMessage{ScheduledOf(*r), ContentOf(content)}
}

// ScheduledPage is a page of the outbox.
type ScheduledPage struct {
	Messages []Scheduled `json:"messages"`
	Next     string      `json:"next,omitempty"`
}

// OutboxStatus is the state of the outbox.
type OutboxStatus struct {
	Lag   Duration  `json:"lag"`           // time for which the first due message has waited; 0s: no message is due
	Next  time.Time `json:"next,omitzero"` // time at which the first message is due; absent: no messages
	Relay bool      `json:"relay"`         // whether a process publishes the messages
}

// ScheduledFilter selects the messages of the outbox that match all fields that are set.
type ScheduledFilter struct {
	IDs        []int64   `json:"ids,omitzero"`
	MessageID  Text      `json:"message_id,omitempty"`
	Exchange   Text      `json:"exchange,omitempty"`
	RoutingKey Text      `json:"routing_key,omitempty"` // the queue, if the message has no exchange
	OrderKey   Text      `json:"order_key,omitempty"`
	Failed     bool      `json:"failed,omitempty"` // an attempt has failed
	From       time.Time `json:"from,omitzero"`    // due at this time or later
	Before     time.Time `json:"before,omitzero"`  // due before this time
}

// Params returns the parameters of the filter.
func (f *ScheduledFilter) Params() params.Params {
	return params.Params{
		{Name: "id", Of: &f.IDs, Help: "IDs of scheduled messages, one parameter for each."},
		{Name: "message_id", Of: &f.MessageID, Help: "The message ID."},
		{Name: "exchange", Of: &f.Exchange, Help: "The exchange."},
		{Name: "routing_key", Of: &f.RoutingKey, Help: "The routing key; without an exchange, the queue."},
		{Name: "order_key", Of: &f.OrderKey, Help: "The key of the order."},
		{Name: "failed", Of: &f.Failed, Help: "Only messages with a failed attempt."},
		{Name: "from", Of: &f.From, Help: "Due at this time or later, or after a duration such as 10m."},
		{Name: "before", Of: &f.Before, Help: "Due before this time, or within a duration such as 10m."},
	}
}

// ScheduledNames are the parameter names of a ScheduledFilter.
var ScheduledNames = new(ScheduledFilter).Params().Names()

// Values returns the filter as URL parameters.
func (f ScheduledFilter) Values() url.Values { return f.Params().Values() }

// IsZero reports whether the filter selects all messages.
func (f ScheduledFilter) IsZero() bool { return len(f.Values()) == 0 }

// ParseScheduledFilter parses a filter. A time may also be a duration from now, such as 10m.
func ParseScheduledFilter(v url.Values, now time.Time) (f ScheduledFilter, err error) {
	r := params.Reader{Values: params.FromNow(v, now, "from", "before"), Now: now}
	r.ReadAll(f.Params())
	return f, r.Err
}

// Filter converts the filter.
func (f ScheduledFilter) Filter() outbox.Filter {
	return outbox.Filter{
		Seqs: f.IDs, MessageID: string(f.MessageID), Key: string(f.OrderKey), Exchange: string(f.Exchange), RoutingKey: string(f.RoutingKey),
		Failed: f.Failed, From: f.From, Before: f.Before,
	}
}

// ScheduledCursor returns the value of next after the last row of a page.
func ScheduledCursor(r outbox.Row) string { return fmt.Sprintf("%d-%d", r.Due.UnixMilli(), r.Seq) }

// AfterScheduled returns the row of a cursor, or nil for "".
func AfterScheduled(cursor string) (*outbox.Row, error) {
	if cursor == "" {
		return nil, nil
	}
	i := strings.LastIndexByte(cursor, '-')
	due, err := strconv.ParseInt(cursor[:max(i, 0)], 10, 64)
	seq, wrong := strconv.ParseInt(cursor[i+1:], 10, 64)
	if err != nil || wrong != nil {
		return nil, failed.Invalid("after must be the next of a page: got %.40q", cursor)
	}
	return &outbox.Row{Seq: seq, Due: time.UnixMilli(due)}, nil
}

// MaxScheduledAct is the maximum number of messages of an act.
const MaxScheduledAct = 10_000

// ScheduledAct is an act on messages of the outbox.
type ScheduledAct struct {
	Filter  ScheduledFilter `json:"filter"`
	All     bool            `json:"all,omitempty"`     // required if the filter selects all messages
	AtMost  int64           `json:"at_most,omitempty"` // maximum number of messages, the first due first. Default: 10000, the maximum
	Through int64           `json:"through,omitempty"` // excludes later messages; see ScheduledDone
	Reason  string          `json:"reason,omitempty"`  // for the audit log
	At      time.Time       `json:"at,omitzero"`       // move: time at which the messages are due
	In      Duration        `json:"in,omitempty"`      // move: the same, from now. Default of both: now
}

// Validate reports missing and invalid fields.
func (a ScheduledAct) Validate() error {
	switch {
	case a.Filter.IsZero() && !a.All:
		return failed.Invalid("all must be set to select all scheduled messages")
	case a.All && !a.Filter.IsZero():
		return failed.Invalid("all must not be combined with a filter")
	case a.AtMost < 0 || a.AtMost > MaxScheduledAct:
		return failed.Invalid("at_most must be from 1 to %d: got %d", MaxScheduledAct, a.AtMost)
	case a.Through < 0:
		return failed.Invalid("through must not be negative: got %d", a.Through)
	case !a.At.IsZero() && a.In != 0:
		return failed.Invalid("at and in must not both be set")
	case a.In < 0:
		return failed.Invalid("in must not be negative: got %s", a.In)
	case len(a.Filter.IDs) > MaxScheduledAct:
		return failed.Invalid("ids must have at most %d IDs: got %d", MaxScheduledAct, len(a.Filter.IDs))
	case len(a.Reason) > 1000:
		return failed.Invalid("reason must have at most 1000 bytes: got %d", len(a.Reason))
	}
	return nil
}

// ScheduledDone is the result of an act.
type ScheduledDone struct {
	Selected  int64 `json:"selected"`            // messages that match; of an act, done + attempted + too_late
	Done      int64 `json:"done"`                // changed; a canceled message never leaves
	Attempted int64 `json:"attempted,omitempty"` // changed after a failed attempt; the broker may have stored the message
	TooLate   int64 `json:"too_late,omitempty"`  // unchanged, because the message is due and may be leaving
	Through   int64 `json:"through,omitempty"`   // dry run: send it in the act to exclude messages that arrive later
	DryRun    bool  `json:"dry_run,omitempty"`   // nothing was changed
}

// CronEntry is a periodic message.
type CronEntry struct {
	App  string      `json:"app"`
	Name string      `json:"name"`
	Spec string      `json:"spec"`
	Next []time.Time `json:"next"` // the next occurrences
	Idle bool        `json:"idle"` // no process inserts the occurrences: the next one is in the past
}

// idleAfter is the time after which a due occurrence shows that no process inserts it.
const idleAfter = time.Minute

// CronEntryOf converts an entry, with its next n occurrences.
func CronEntryOf(s outbox.Scheduled, n int, now time.Time) CronEntry {
	e := CronEntry{s.App, s.Name, s.Spec, s.Times(n), false}
	e.Idle = len(e.Next) == 0 || e.Next[0].Before(now.Add(-idleAfter))
	e.Next = append([]time.Time{}, e.Next...)
	return e
}

// Cron contains the periodic messages.
type Cron struct {
	Entries []CronEntry `json:"entries"`
}

// CronName identifies a periodic message.
type CronName struct {
	App  string `json:"app,omitempty"` // optional if only one app has an entry with the name
	Name string `json:"name"`
}

// Scheduled returns a page of the outbox, the next due first.
func (c *Client) Scheduled(ctx context.Context, f ScheduledFilter, p Page) (ScheduledPage, error) {
	return get[ScheduledPage](ctx, c, "scheduled", p.in(f.Values()))
}

// ScheduledMessage returns a message of the outbox with its content.
func (c *Client) ScheduledMessage(ctx context.Context, id int64) (ScheduledMessage, error) {
	return get[ScheduledMessage](ctx, c, at("scheduled", id), nil)
}

// OutboxStatus returns the state of the outbox.
func (c *Client) OutboxStatus(ctx context.Context) (OutboxStatus, error) {
	return get[OutboxStatus](ctx, c, "scheduled/status", nil)
}

// CancelScheduled deletes messages of the outbox. A dry run only counts them.
func (c *Client) CancelScheduled(ctx context.Context, a ScheduledAct, dryRun bool) (ScheduledDone, error) {
	return call[ScheduledDone](ctx, c, http.MethodPost, "scheduled/cancel", dry(dryRun), a)
}

// MoveScheduled changes the times of messages of the outbox. A dry run only counts them.
func (c *Client) MoveScheduled(ctx context.Context, a ScheduledAct, dryRun bool) (ScheduledDone, error) {
	return call[ScheduledDone](ctx, c, http.MethodPost, "scheduled/move", dry(dryRun), a)
}

// Cron returns the periodic messages, each with its next n occurrences.
func (c *Client) Cron(ctx context.Context, n int) (Cron, error) {
	return get[Cron](ctx, c, "cron", url.Values{"count": {strconv.Itoa(n)}})
}

// RunCron makes a periodic message occur now.
func (c *Client) RunCron(ctx context.Context, name CronName) (CronName, error) {
	return call[CronName](ctx, c, http.MethodPost, "cron/run", nil, name)
}

// RemoveCron removes a periodic message from the list.
func (c *Client) RemoveCron(ctx context.Context, name CronName) (CronName, error) {
	return call[CronName](ctx, c, http.MethodPost, "cron/remove", nil, name)
}
