package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/history"
)

// configuredHistory returns the history, or a failure if the console does not record a history.
func (c *Call) configuredHistory() (*history.History, error) {
	if c.History == nil {
		return nil, &fault.Failure{Status: http.StatusServiceUnavailable, Text: "history not found", Advice: "use “reprise console”, or “reprise up” with an archive, to record a history"}
	}
	return c.History, nil
}

// Histories contains the histories of queues over a range, with the marks in this range and in the hour before it.
type Histories struct {
	Range  history.Range
	Queues []history.Series
	Marks  []history.Mark // the newest first
}

// Histories returns the history of a queue, or of all queues if queue is empty, over the range of the query.
func (c *Call) Histories(queue string) (all Histories, err error) {
	h, err := c.configuredHistory()
	if err != nil {
		return all, err
	}
	all.Range = history.Day
	if name := c.Params.Get("range"); name != "" {
		if all.Range, err = history.ParseRange(name); err != nil {
			f := fault.BadRequest(err.Error(), "correct the parameter")
			f.Param = "range"
			return all, f
		}
	}
	if queue == "" {
		all.Queues, err = h.All(c.R.Context(), all.Range)
	} else {
		var one history.Series
		one, err = h.Series(c.R.Context(), queue, all.Range)
		one.Queue = queue
		all.Queues = []history.Series{one}
	}
	if err == nil {
		all.Marks, err = h.Marks(c.R.Context(), h.Config().Clock().Add(-all.Range.Length-time.Hour))
	}
	return all, err
}

// Marks returns all marks, the newest first.
func (c *Call) Marks() ([]history.Mark, error) {
	h, err := c.configuredHistory()
	if err != nil {
		return nil, err
	}
	return h.Marks(c.R.Context(), time.Time{})
}

// AddMark adds a mark on behalf of the visitor, and records the mark in the audit log.
func (c *Call) AddMark(m history.Mark) (history.Mark, error) {
	h, err := c.configuredHistory()
	if err != nil {
		return m, err
	}
	m.By = c.Who.Actor
	m, err = h.AddMark(c.R.Context(), m)
	if errors.Is(err, history.ErrInvalid) {
		return m, fault.BadRequest(err.Error(), "correct the mark; nothing was changed")
	}
	if err != nil {
		return m, err
	}
	return m, c.recordMark("mark", m)
}

// RemoveMark removes a mark, and records the removal in the audit log.
func (c *Call) RemoveMark(id int64) (history.Mark, error) {
	h, err := c.configuredHistory()
	if err != nil {
		return history.Mark{}, err
	}
	m, err := h.RemoveMark(c.R.Context(), id)
	if errors.Is(err, history.ErrNoMark) {
		return m, &fault.Failure{Status: http.StatusNotFound, Text: fmt.Sprintf("mark %d not found", id), Advice: "the page History lists the marks"}
	}
	if err != nil {
		return m, err
	}
	return m, c.recordMark("remove mark", m)
}

func (c *Call) recordMark(verb string, m history.Mark) error {
	subject := fmt.Sprint("mark/", m.ID)
	details := map[string]any{"text": m.Text, "at": m.At.Format(time.RFC3339), "queue": m.Queue}
	// Record the change even if the visitor has disconnected.
	if err := c.Archive.Record(context.WithoutCancel(c.R.Context()), c.Who.Actor, verb, subject, details); err != nil {
		return fmt.Errorf("cannot record the %s of %s in the audit log: %w", verb, subject, err)
	}
	return nil
}
