package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/reprisemq/reprise/internal/archive/history"
)

// HistoryNames contains the parameter names of a request for a History.
var HistoryNames = []string{"queue", "range"}

// History contains the activity of queues in a time range.
type History struct {
	Range  string         `json:"range"` // 1h, 24h or 7d
	Step   Duration       `json:"step"`  // length of an interval
	Now    time.Time      `json:"now"`
	Queues []QueueHistory `json:"queues"`
	Marks  []history.Mark `json:"marks"` // newest first
}

// QueueHistory is the history of a queue.
type QueueHistory struct {
	Queue  Text       `json:"queue"`
	Total  Activity   `json:"total"`
	Rises  []Rise     `json:"rises"`
	Points []Interval `json:"points"`
}

// Activity counts the events of a period.
type Activity struct {
	Succeeded uint64  `json:"succeeded"` // messages
	Failed    uint64  `json:"failed"`    // attempts
	Retried   uint64  `json:"retried"`
	Parked    uint64  `json:"parked"`
	Arrived   uint64  `json:"arrived"`          // in the archive
	Failures  uint64  `json:"failures"`         // maximum of Failed and Arrived
	P50       float64 `json:"p50_ms,omitempty"` // percentiles of handling times in ms, rounded up; 0: no message was handled
	P95       float64 `json:"p95_ms,omitempty"`
	P99       float64 `json:"p99_ms,omitempty"`
}

// Interval is the activity of one interval.
type Interval struct {
	Start    time.Time `json:"start"`
	Recorded bool      `json:"recorded"` // false if the counts are this interval's equal share of a longer unrecorded period
	Activity
}

// Rise is a period with far more failures than the period before.
type Rise struct {
	Text     string    `json:"text"` // a sentence
	Earliest time.Time `json:"earliest"`
	Latest   time.Time `json:"latest"`
	End      time.Time `json:"end,omitzero"` // absent while the rise lasts
	Calm     float64   `json:"calm_per_minute"`
	Rate     float64   `json:"rate_per_minute"`
	Peak     float64   `json:"peak_per_minute"`
	Mark     int64     `json:"mark,omitempty"` // ID of the mark shortly before the rise
}

// Marks contains the marks of all queues, newest first.
type Marks struct {
	Marks []history.Mark `json:"marks"`
}

// NewMark is a mark to add.
type NewMark struct {
	Text  string    `json:"text"`
	Time  time.Time `json:"time,omitzero"`   // absent: now
	Queue Text      `json:"queue,omitempty"` // empty: all
}

// HistoryOf converts the history of queues to its JSON form.
func HistoryOf(r history.Range, all []history.Series, marks []history.Mark, now time.Time) History {
	h := History{Range: r.Name, Step: Duration(r.Step), Now: now, Queues: []QueueHistory{}, Marks: append([]history.Mark{}, marks...)}
	for _, s := range all {
		q := QueueHistory{Queue: Text(s.Queue), Total: activityOf(s.Sum()), Rises: []Rise{}, Points: []Interval{}}
		for _, p := range s.Points {
			q.Points = append(q.Points, Interval{p.Start, !p.Gap(), activityOf(p.Totals)})
		}
		for _, r := range s.Rises(marks) {
			rise := Rise{Text: r.String(), Earliest: r.Earliest, Latest: r.Latest, End: r.End, Calm: r.Calm, Rate: r.Rate, Peak: r.Peak}
			if r.After != nil {
				rise.Mark = r.After.ID
			}
			q.Rises = append(q.Rises, rise)
		}
		h.Queues = append(h.Queues, q)
	}
	return h
}

func activityOf(t history.Totals) Activity {
	a := Activity{Succeeded: t.Succeeded, Failed: t.Failed, Retried: t.Retried, Parked: t.Parked, Arrived: t.Arrived, Failures: t.Failures()}
	quantile := func(q float64) float64 { return float64(t.Took.Quantile(q)) / float64(time.Millisecond) }
	a.P50, a.P95, a.P99 = quantile(0.5), quantile(0.95), quantile(0.99)
	return a
}

// History returns the history of a queue, or of all queues if queue is empty, in the range with the given name.
func (c *Client) History(ctx context.Context, queue, rangeName string) (History, error) {
	query := url.Values{"range": {rangeName}}
	if queue != "" {
		text, err := Text(queue).MarshalText()
		if err != nil {
			return History{}, err
		}
		query.Set("queue", string(text))
	}
	return get[History](ctx, c, "history", query)
}

// Marks returns all marks.
func (c *Client) Marks(ctx context.Context) (Marks, error) { return get[Marks](ctx, c, "marks", nil) }

// AddMark adds a mark.
func (c *Client) AddMark(ctx context.Context, m NewMark) (history.Mark, error) {
	return call[history.Mark](ctx, c, http.MethodPost, "marks", nil, m)
}

// RemoveMark removes a mark and returns it.
func (c *Client) RemoveMark(ctx context.Context, id int64) (history.Mark, error) {
	return call[history.Mark](ctx, c, http.MethodDelete, fmt.Sprint("marks/", id), nil, nil)
}
