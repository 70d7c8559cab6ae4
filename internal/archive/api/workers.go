package api

import (
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/protocol"
)

// Workers contains the workers of all processes.
type Workers struct {
	Workers []Worker `json:"workers"`
	Problem string   `json:"problem,omitempty"` // why the list is not available
}

// Worker describes a worker and its state.
type Worker struct {
	ID          string           `json:"id"`
	Queue       string           `json:"queue"`
	State       string           `json:"state"` // connecting, consuming, paused or silent
	Trouble     string           `json:"trouble,omitempty"`
	Pauses      []protocol.Pause `json:"pauses"`
	Client      string           `json:"client"`
	Host        string           `json:"host"`
	PID         int              `json:"pid"`
	Program     string           `json:"program,omitempty"`
	Reprise     string           `json:"reprise,omitempty"`
	Started     time.Time        `json:"started"`
	Heard       time.Time        `json:"heard"`
	Concurrency int              `json:"concurrency"`
	Running     int              `json:"running"`
	Handling    []Handling       `json:"handling"`
	Counts      protocol.Counts  `json:"counts"`
	Keys        *protocol.Keys   `json:"keys,omitempty"` // nil: the worker does not keep the order of keys
}

// Handling is a message that a worker is handling.
type Handling struct {
	MessageID string   `json:"id,omitempty"`
	Attempt   int      `json:"attempt"`
	For       Duration `json:"for"` // handling time up to the last status of the worker

	Progress *Progress `json:"progress,omitempty"`
}

// Progress is the latest report of a handler.
type Progress struct {
	Fraction float64  `json:"fraction"` // from 0 to 1; 0: only a sign of life
	Text     string   `json:"text,omitempty"`
	Ago      Duration `json:"ago"` // time from the report to the last status of the worker
}

// Percent returns the fraction in percent.
func (p *Progress) Percent() int { return int(math.Round(p.Fraction * 100)) }

// WorkerSilent is the state of a worker that no longer sends statuses.
const WorkerSilent = "silent"

// WorkersOf returns the workers of the given queues, or of all queues if queues is empty.
func WorkersOf(list []fleet.Worker, queues []string) Workers {
	all := Workers{Workers: []Worker{}}
	for _, w := range list {
		if len(queues) > 0 && !slices.Contains(queues, w.Queue) {
			continue
		}
		shown := Worker{
			ID: w.ID, Queue: w.Queue, State: w.State, Trouble: w.Trouble, Pauses: append([]protocol.Pause{}, w.Pauses...),
			Client: w.Client, Host: w.Host, PID: w.PID, Program: w.Program, Reprise: w.Reprise, Started: w.Started, Heard: w.Heard,
			Concurrency: w.Concurrency, Running: w.Running, Handling: []Handling{}, Counts: w.Counts, Keys: w.Keys,
		}
		if w.Silent {
			shown.State = WorkerSilent
		}
		for _, h := range w.Handling {
			one := Handling{MessageID: h.MessageID, Attempt: h.Attempt, For: Duration(w.Handles(h).Round(time.Millisecond))}
			if p := h.Progress; p != nil {
				valid := protocol.NewProgress(p.Fraction, p.Text, p.At) // any program can write a status
				one.Progress = &Progress{valid.Fraction, valid.Text, Duration(max(0, w.Sent.Sub(p.At)).Round(time.Millisecond))}
			}
			shown.Handling = append(shown.Handling, one)
		}
		all.Workers = append(all.Workers, shown)
	}
	return all
}

// Pause pauses a queue, or one of its workers.
type Pause struct {
	Queue  string   `json:"queue"`
	Worker string   `json:"worker,omitempty"`
	For    Duration `json:"for,omitempty"` // 0: until it is resumed
	Reason string   `json:"reason,omitempty"`
}

// Resume ends a pause.
type Resume struct {
	Queue  string `json:"queue"`
	Worker string `json:"worker,omitempty"`
}

// KeyAct is an act for the messages of a blocked key.
type KeyAct struct {
	Queue  string         `json:"queue"`
	Key    string         `json:"key,omitempty"`
	Do     reprise.KeyAct `json:"do"`                // retry (the first message), park (the first message) or park-all
	AtMost int            `json:"at_most,omitempty"` // maximum number of messages of park-all. Required for park-all, except in a dry run.
	Since  time.Time      `json:"since,omitzero"`    // since of the key, as listed. If set, the act fails if the key now has another first message.
	Reason string         `json:"reason,omitempty"`
}

// KeyDone is the result of an act for a key.
type KeyDone struct {
	Messages int  `json:"messages"`          // at most this number of messages
	Effect   bool `json:"effect"`            // false: the broker has stored the act, and no worker has reported its effect yet
	DryRun   bool `json:"dry_run,omitempty"` // nothing was stored
}

// Workers returns all workers.
func (c *Client) Workers(ctx context.Context) (Workers, error) {
	return get[Workers](ctx, c, "workers", nil)
}

// PauseWorkers pauses a queue, or one of its workers.
func (c *Client) PauseWorkers(ctx context.Context, p Pause) (Workers, error) {
	return call[Workers](ctx, c, http.MethodPost, "workers/pause", nil, p)
}

// ResumeWorkers ends a pause.
func (c *Client) ResumeWorkers(ctx context.Context, r Resume) (Workers, error) {
	return call[Workers](ctx, c, http.MethodPost, "workers/resume", nil, r)
}

// ControlKey acts on a blocked key. A dry run only counts the messages.
func (c *Client) ControlKey(ctx context.Context, a KeyAct, dryRun bool) (KeyDone, error) {
	return call[KeyDone](ctx, c, http.MethodPost, "workers/keys", dry(dryRun), a)
}
