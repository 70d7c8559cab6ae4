package jsonapi

import (
	"context"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/sift"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
)

// selectionFilter validates a selection and returns its filter. For a dry run, it limits the filter to the messages that
// have arrived, and sets done.DryRun and done.Through.
func selectionFilter(c *web.Call, s failed.Selection, done *api.Done) (f failed.Filter, err error) {
	if done.DryRun, err = c.Flag("dry_run"); err != nil {
		return f, err
	}
	if err := s.Validate(); err != nil {
		return f, fault.BadRequest(err.Error(), "correct the selection; nothing was changed")
	}
	f = s.Selected()
	if err := c.Archive.Check(c.R.Context(), f); err != nil || !done.DryRun {
		return f, err
	}
	if f.Through == 0 {
		f.Through, err = c.Archive.Newest(c.R.Context())
	}
	done.Through = f.Through
	return f, err
}

func discard(c *web.Call, d api.Discard) (done api.Done, err error) {
	f, err := selectionFilter(c, d.Selection, &done)
	switch {
	case err != nil:
	case done.DryRun:
		done.Messages, err = c.Archive.CountState(c.R.Context(), f, failed.Failed)
	case d.Reason == "":
		err = fault.BadRequest("reason must not be empty", `send "reason", for the audit log`)
	default:
		done.Messages, err = c.Archive.Discard(c.R.Context(), f, d.Reason, c.Who.Actor)
	}
	return done, err
}

func restore(c *web.Call, s failed.Selection) (done api.Done, err error) {
	f, err := selectionFilter(c, s, &done)
	switch {
	case err != nil:
	case done.DryRun:
		done.Messages, err = c.Archive.CountState(c.R.Context(), f, failed.Discarded)
	default:
		done.Messages, err = c.Archive.Restore(c.R.Context(), f, c.Who.Actor)
	}
	return done, err
}

// erase permanently deletes the contents of messages.
func erase(c *web.Call, e api.Erase) (done api.Done, err error) {
	f, err := selectionFilter(c, e.Selection, &done)
	var n store.Erasure
	switch {
	case err != nil:
		return done, err
	case done.DryRun:
		n, err = c.Archive.WouldErase(c.R.Context(), f)
	case strings.TrimSpace(e.Reason) == "":
		return done, fault.BadRequest("reason must not be empty", `send "reason": why the messages are erased, without personal data`)
	default:
		n, err = c.Archive.Erase(c.R.Context(), f, e.Reason, c.Who.Actor)
	}
	done.Messages, done.Left, done.States = n.Total(), n.Left, n.Counts
	return done, err
}

// purgeQueue removes messages from a queue of the broker.
func purgeQueue(c *web.Call, p api.PurgeQueue) (done api.Done, err error) {
	if done.DryRun, err = c.Flag("dry_run"); err != nil {
		return done, err
	}
	var n int
	if done.DryRun {
		n, err = c.QueueDepth(string(p.Queue))
	} else {
		n, err = c.PurgeQueue(p)
	}
	done.Messages = int64(n)
	return done, err
}

// peekQueue looks at the first messages of a queue.
func peekQueue(c *web.Call, p api.Peek) (done api.Peeks, err error) {
	if done.DryRun, err = c.Flag("dry_run"); err != nil {
		return done, err
	}
	done.Messages = []api.Peeked{}
	var cost sift.Cost
	if done.DryRun {
		done.Ready, cost, err = c.PeekCost(string(p.Queue))
	} else {
		secrets := c.Secrets()
		done.Ready, cost, err = c.Peek(p, func(m *reprise.Delivery) { done.Messages = append(done.Messages, api.PeekedOf(m, secrets)) })
	}
	done.Cost, done.Counts = cost.Text, cost.Counts
	return done, err
}

func publish(c *web.Call, p api.Publish) (api.Published, error) {
	return c.Publish(p)
}

// purge removes from the archive the messages whose retention period has expired.
func purge(c *web.Call) (done api.Done, err error) {
	if done.DryRun, err = c.Flag("dry_run"); err != nil {
		return done, err
	}
	if done.DryRun {
		done.Messages, err = c.Archive.WouldPurge(c.R.Context())
	} else {
		done.Messages, err = c.Archive.Purge(c.R.Context(), c.Who.Actor)
	}
	return done, err
}

func edit(c *web.Call, id int64, e api.Edit) (m api.Message, err error) {
	content, err := c.Edited(failed.ID(id), e)
	if err != nil {
		return m, err
	}
	if err := c.Archive.Edit(c.R.Context(), failed.ID(id), *e.Revision, content, c.Who.Actor); err != nil {
		return m, err
	}
	return message(c, id)
}

func revert(c *web.Call, id int64) (m api.Message, err error) {
	revision := c.Params.Get("revision")
	seen, err := strconv.Atoi(revision)
	if err != nil {
		return m, fault.BadRequest("revision must be an integer: got "+brief.Quoted(revision), "send revision= with the revision of the message that you have read, so that no edit is lost")
	}
	if err := c.Archive.Revert(c.R.Context(), failed.ID(id), seen, c.Who.Actor); err != nil {
		return m, err
	}
	return message(c, id)
}

// editAndReplay edits a message and begins a replay of it, or does neither.
func editAndReplay(c *web.Call) error {
	id, err := pathNumber(c, "id")
	if err != nil {
		return err
	}
	var e api.EditAndReplay
	if err := c.Read(&e); err != nil {
		return err
	}
	content, err := c.Edited(failed.ID(id), e.Edit)
	if err != nil {
		return err
	}
	r, err := c.EditAndReplay(failed.ID(id), *e.Revision, content, api.Plan{To: e.To, ByQueueName: e.ByQueueName}.Plan())
	if err != nil {
		return err
	}
	return created(c, r)
}

func beginReplay(c *web.Call) error {
	var done api.Done
	var plan api.Plan
	if err := c.Read(&plan); err != nil {
		return err
	}
	if _, err := selectionFilter(c, plan.Selection, &done); err != nil {
		return err
	}
	if plan.Edit != nil {
		if err := plan.Edit.BulkEdit().Validate(); err != nil {
			return err
		}
	}
	if plan.Rate < 0 || plan.Canary < 0 {
		return fault.BadRequest("rate and canary must not be negative", "omit them for no limit and no canary")
	}
	if done.DryRun {
		plan.Through = done.Through
		destinations, err := replay.Destinations(c.R.Context(), c.Archive, plan.Plan(), c.Routing)
		if err != nil {
			return err
		}
		preview := api.PreviewOf(destinations)
		preview.Through = done.Through
		lost, _, err := replay.Refusals(c.R.Context(), c.Archive, plan.Plan(), maxEdited)
		if err != nil {
			return err
		}
		for _, r := range lost {
			preview.Lost = append(preview.Lost, api.EditReason(r))
		}
		if plan.Edit != nil {
			if preview.Edit, err = editPreview(c, plan.Plan()); err != nil {
				return err
			}
		}
		return c.OK(preview)
	}
	r, err := c.Begin(plan.Plan())
	if err != nil {
		return err
	}
	return created(c, r)
}

// maxEdited is the maximum number of messages that a dry run examines.
const maxEdited = 100_000

func editPreview(c *web.Call, plan failed.Plan) (*api.EditPreview, error) {
	v, err := c.PreviewEdit(plan, maxEdited)
	if err != nil {
		return nil, err
	}
	shown := api.EditPreviewOf(v)
	for _, s := range v.Samples {
		sample := api.EditSample{ID: int64(s.ID), Why: s.Why}
		if s.After != nil {
			d := difference(*s.Before, *s.After)
			sample.Diff = &d
		}
		shown.Samples = append(shown.Samples, sample)
	}
	return &shown, nil
}

func cancel(c *web.Call, id int64, why api.Cancel) (r api.Replay, err error) {
	if err := c.Archive.EndReplay(c.R.Context(), failed.ReplayID(id), failed.ReplayCancelled, why.Reason, c.Who.Actor); err != nil {
		return r, err
	}
	return oneReplay(c, id)
}

func mute(c *web.Call, id int64, m api.Mute) (g *store.Group, err error) {
	if m.Seconds < 0 {
		return g, fault.BadRequest("seconds must not be negative", "omit it to mute the group until it is unmuted")
	}
	if err := c.Mute(failed.GroupID(id), m.Seconds); err != nil {
		return g, err
	}
	return group(c, id)
}

func unmute(c *web.Call, id int64) (g *store.Group, err error) {
	if err := c.Archive.Unmute(c.R.Context(), failed.GroupID(id), c.Who.Actor); err != nil {
		return g, err
	}
	return group(c, id)
}

// merge, unmerge and regroup continue after the client has closed the connection, because many messages take some time.
func merge(c *web.Call, m api.Merge) (g *store.Group, err error) {
	id, err := c.Archive.Merge(context.WithoutCancel(c.R.Context()), m.Groups, m.Name, c.Who.Actor)
	if err != nil {
		return g, err
	}
	return group(c, int64(id))
}

func unmerge(c *web.Call, id int64) (d api.Done, err error) {
	d.Messages, err = c.Archive.Unmerge(context.WithoutCancel(c.R.Context()), failed.GroupID(id), c.Who.Actor)
	return d, err
}

func regroup(c *web.Call, r api.Regroup) (d api.Done, err error) {
	d.Messages, err = c.Archive.Regroup(context.WithoutCancel(c.R.Context()), string(r.Queue), c.Who.Actor)
	return d, err
}

func accept(c *web.Call, a api.Accept) (l api.Ledger, err error) {
	if err := c.Accept(string(a.Account), a.Reason); err != nil {
		return l, err
	}
	return ledgerReport(c)
}
