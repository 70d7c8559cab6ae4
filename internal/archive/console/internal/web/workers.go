package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/protocol"
)

// Fleet lists workers, and sends commands to them.
type Fleet interface {
	Workers() []fleet.Worker
	Err() error // the reason why the list is incomplete, or nil
	Control(ctx context.Context, c protocol.Command) error
	ControlKey(ctx context.Context, k reprise.KeyControl, wait time.Duration) (effect bool, err error)
}

// Workers returns the workers that the console knows, and the reason why the list may be incomplete.
func (c *Call) Workers() (all api.Workers) {
	if c.Fleet == nil {
		all.Workers, all.Problem = []api.Worker{}, "this console does not listen to workers"
		return all
	}
	all = api.WorkersOf(c.Fleet.Workers(), nil)
	if err := c.Fleet.Err(); err != nil {
		all.Problem = strings.TrimPrefix(err.Error(), "reprise: ")
	}
	return all
}

// maxPause is the maximum duration of a pause that ends automatically.
const maxPause = 365 * 24 * time.Hour

// commandTimeout limits the duration of a request to the broker.
const commandTimeout = 10 * time.Second

// PauseWorkers pauses all workers of a queue or one worker, and records the pause in the audit log.
func (c *Call) PauseWorkers(p api.Pause) error {
	lasts := time.Duration(p.For)
	switch {
	case lasts < 0 || lasts > maxPause:
		return fault.BadRequest("for must be from 0 to a year: got "+lasts.String(), "send a duration of at most a year, such as 10m, or omit it to pause until the queue is resumed")
	case len(p.Reason) > 500:
		return fault.BadRequest("reason must have at most 500 bytes", "send a shorter reason")
	}
	if err := c.checkWorker(p.Queue, p.Worker, true); err != nil {
		return err
	}
	pause := protocol.Pause{By: string(c.Who.Actor), Reason: p.Reason, At: time.Now()}
	details := map[string]any{"reason": p.Reason}
	if lasts > 0 {
		pause.Until = pause.At.Add(lasts)
		details["for"] = lasts.String()
	}
	return c.command(protocol.Command{Do: protocol.DoPause, Queue: p.Queue, Worker: p.Worker, Pause: pause}, details)
}

// ResumeWorkers ends a pause, and records the resumption in the audit log.
func (c *Call) ResumeWorkers(r api.Resume) error {
	if err := c.checkWorker(r.Queue, r.Worker, false); err != nil {
		return err
	}
	return c.command(protocol.Command{Do: protocol.DoResume, Queue: r.Queue, Worker: r.Worker}, map[string]any{})
}

// checkWorker returns a failure if a command cannot apply to the queue or the worker. If worker is set or listed is
// true, the list of workers must contain a matching worker.
func (c *Call) checkWorker(queue, worker string, listed bool) error {
	switch {
	case c.Fleet == nil:
		return &fault.Failure{Status: http.StatusServiceUnavailable, Text: "this console does not listen to workers", Advice: "use the command “reprise pause”"}
	case queue == "":
		return fault.BadRequest("queue must not be empty", `send "queue": the work queue of the workers`)
	case worker == "" && !listed:
		return nil // a queue can be paused while it has no running workers
	case slices.ContainsFunc(c.Fleet.Workers(), func(w fleet.Worker) bool { return w.Queue == queue && (worker == "" || w.ID == worker) }):
		return nil
	case worker != "":
		return &fault.Failure{Status: http.StatusNotFound, Text: "worker not found", Advice: "nothing was changed: the worker stopped or restarted; see the list of workers"}
	}
	return &fault.Failure{
		Status: http.StatusNotFound, Text: "no worker of this queue found",
		Advice: "nothing was changed: see the list of workers; the command “reprise pause” can pause a queue without workers",
	}
}

// command sends a command to the workers, and records it in the audit log.
func (c *Call) command(command protocol.Command, details map[string]any) error {
	ctx, cancel := context.WithTimeout(c.R.Context(), commandTimeout)
	defer cancel()
	if err := c.Fleet.Control(ctx, command); err != nil {
		return notCommanded(err)
	}
	subject := "queue/" + command.Queue
	if command.Worker != "" {
		subject = "worker/" + command.Worker
		details["queue"] = command.Queue
	}
	// Record the command even if the visitor has disconnected, because the broker has accepted it.
	if err := c.Archive.Record(context.WithoutCancel(c.R.Context()), c.Who.Actor, command.Do, subject, details); err != nil {
		return fmt.Errorf("cannot record the %s of %s in the audit log: %w", command.Do, subject, err)
	}
	return nil
}

// effectTime limits the time in which an act for a key waits for a report of its effect.
const effectTime = 3 * time.Second

// CheckKey returns the blocked key that an act concerns, or a failure if the act is not possible now.
func (c *Call) CheckKey(a api.KeyAct) (k protocol.BlockedKey, err error) {
	switch {
	case c.Fleet == nil:
		return k, &fault.Failure{Status: http.StatusServiceUnavailable, Text: "this console does not listen to workers", Advice: "use the command “reprise keys”"}
	case a.Queue == "":
		return k, fault.BadRequest("queue must not be empty", `send "queue": the work queue of the workers`)
	case a.Do != reprise.RetryFirst && a.Do != reprise.ParkFirst && a.Do != reprise.ParkAll:
		return k, fault.BadRequest("do must be retry, park or park-all: got "+brief.Quoted(string(a.Do)), "nothing was changed")
	case a.AtMost < 0:
		return k, fault.BadRequest(fmt.Sprintf("at_most must not be negative: got %d", a.AtMost), "nothing was changed")
	case len(a.Reason) > 500:
		return k, fault.BadRequest("reason must have at most 500 bytes", "send a shorter reason")
	}
	all, _ := fleet.KeysOf(c.Fleet.Workers(), a.Queue, time.Time{})
	k, blocked := all.Find(a.Key)
	switch {
	case !blocked && len(all.Keys) < all.Blocked:
		return k, &fault.Failure{Status: http.StatusNotFound, Text: "key not listed", Advice: "nothing was changed: each worker lists its 10 oldest keys; the command “reprise keys” can act on others"}
	case !blocked:
		return k, &fault.Failure{Status: http.StatusNotFound, Text: "key not blocked", Advice: "nothing was changed: the key continues, or its queue has no worker now; see the list of workers"}
	case !a.Since.IsZero() && !a.Since.Equal(k.Since):
		return k, &fault.Failure{Status: http.StatusConflict, Text: "the key has another first message now", Advice: "nothing was changed: see the list of workers, and repeat the action there"}
	}
	return k, nil
}

// ControlKey acts on a blocked key, and records the act in the audit log.
func (c *Call) ControlKey(a api.KeyAct, dryRun bool) (done api.KeyDone, err error) {
	k, err := c.CheckKey(a)
	if err != nil {
		return done, err
	}
	done = api.KeyDone{Messages: 1, DryRun: dryRun}
	if a.Do == reprise.ParkAll {
		done.Messages = 1 + k.Behind
	}
	switch {
	case dryRun:
		return done, nil
	case a.Do == reprise.ParkAll && a.AtMost == 0:
		return done, fault.BadRequest("at_most must be set", "send the number of messages that a dry run returns; nothing was changed")
	case a.Do == reprise.ParkAll:
		done.Messages = a.AtMost
	}
	control := reprise.KeyControl{Queue: a.Queue, Key: a.Key, Act: a.Do, Limit: a.AtMost, By: string(c.Who.Actor)}
	details := map[string]any{"key": a.Key, "reason": a.Reason}
	if a.Do == reprise.ParkAll {
		details["at_most"] = a.AtMost
	}
	// The request continues if the visitor disconnects, because the broker may have accepted it. The record contains a failure.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.R.Context()), commandTimeout)
	defer cancel()
	if done.Effect, err = c.Fleet.ControlKey(ctx, control, effectTime); err != nil {
		details["error"] = err.Error()
		err = notCommanded(err)
	}
	verb := map[reprise.KeyAct]string{reprise.RetryFirst: "retry key", reprise.ParkFirst: "park key", reprise.ParkAll: "park all of key"}[a.Do]
	if unrecorded := c.Archive.Record(context.WithoutCancel(c.R.Context()), c.Who.Actor, verb, "queue/"+a.Queue, details); unrecorded != nil {
		return done, errors.Join(err, fmt.Errorf("cannot record the act in the audit log: %w", unrecorded))
	}
	return done, err
}

// notCommanded returns the failure for a command that the broker did not accept.
func notCommanded(err error) error {
	f := &fault.Failure{Status: http.StatusServiceUnavailable, Text: "the broker did not accept the command: " + strings.TrimPrefix(err.Error(), "reprise: "), Advice: "check the list of workers, and try again"}
	declare, refused := errors.AsType[*reprise.DeclareError](err)
	_, denied := errors.AsType[*reprise.RefusedError](err)
	switch {
	case refused:
		f.Status, f.Text, f.Advice = http.StatusForbidden, "the console's user on the broker does not have permission: "+declare.Advice, "docs/security.md lists the required permissions"
	case denied:
		f.Status, f.Advice = http.StatusForbidden, "docs/security.md lists the required permissions"
	case errors.Is(err, reprise.ErrUnroutable):
		f.Status, f.Text = http.StatusConflict, "no worker responds"
	}
	return f
}
