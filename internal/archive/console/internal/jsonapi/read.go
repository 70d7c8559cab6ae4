package jsonapi

import (
	"net/http"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/doctor"
)

func messages(c *web.Call, p store.Page) (m api.Messages, err error) {
	f, err := c.Filter()
	if err != nil {
		return m, err
	}
	list, next, err := c.Archive.List(c.R.Context(), f, p)
	if err != nil {
		return m, err
	}
	m = api.Messages{Messages: convert(list, api.SummaryOf), Next: next}
	details, err := c.Archive.Details(c.R.Context(), list, c.Secrets())
	for i, text := range details {
		m.Messages[i].Detail = text
	}
	return m, err
}

func count(c *web.Call) (store.Total, error) {
	f, err := c.Filter()
	if err != nil {
		return store.Total{}, err
	}
	return c.Archive.Count(c.R.Context(), f)
}

func message(c *web.Call, id int64) (api.Message, error) {
	m, isRedacted, err := c.Message(failed.ID(id))
	if err != nil {
		return api.Message{}, err
	}
	shown := api.MessageOf(m)
	shown.Redacted = isRedacted
	return shown, nil
}

// body responds with the body that a replay would publish or, with ?original=true, with the original body.
func body(c *web.Call) error {
	id, err := pathNumber(c, "id")
	if err != nil {
		return err
	}
	return c.SendBody(failed.ID(id), "")
}

func revisions(c *web.Call, id int64) (api.Revisions, error) {
	edits, err := c.Archive.Edits(c.R.Context(), failed.ID(id))
	return api.Revisions{Revisions: convert(edits, api.RevisionSummaryOf)}, err
}

func revision(c *web.Call, id int64) (r api.Revision, err error) {
	number, err := pathNumber(c, "number")
	if err != nil {
		return r, err
	}
	found, isRedacted, err := c.Revision(failed.ID(id), int(number))
	if err != nil {
		return r, err
	}
	return api.Revision{RevisionSummary: api.RevisionSummaryOf(*found), Content: api.ContentOf(found.Content), Redacted: isRedacted}, nil
}

func diff(c *web.Call, id int64) (api.Diff, error) {
	m, _, err := c.Message(failed.ID(id))
	if err != nil || m.Edited == nil {
		return api.Diff{}, err
	}
	return difference(m.Content, *m.Edited), nil
}

func groups(c *web.Call, p store.Page) (g api.Groups, err error) {
	f, err := api.ParseGroupFilter(web.Only(c.Params, api.GroupNames))
	if err != nil {
		return g, fault.BadFilter(err)
	}
	list, next, err := c.Archive.Groups(c.R.Context(), f.Filter(), p)
	return api.Groups{Groups: listed(list), Next: next}, err
}

func group(c *web.Call, id int64) (*store.Group, error) {
	return c.Archive.Group(c.R.Context(), failed.GroupID(id))
}

func queues(c *web.Call) (api.Queues, error) {
	list, err := c.Archive.Queues(c.R.Context())
	return api.Queues{Queues: listed(list)}, err
}

func replays(c *web.Call, p store.Page) (api.Replays, error) {
	list, next, err := c.Archive.Replays(c.R.Context(), p)
	return api.Replays{Replays: convert(list, api.ReplayOf), Next: next}, err
}

func oneReplay(c *web.Call, id int64) (api.Replay, error) {
	r, err := c.Archive.Replay(c.R.Context(), failed.ReplayID(id))
	if err != nil {
		return api.Replay{}, err
	}
	return api.ReplayOf(*r), nil
}

func acts(c *web.Call, p store.Page) (api.Acts, error) {
	f, err := api.ParseActs(c.Params, c.Clock())
	if err != nil {
		return api.Acts{}, fault.BadRequest(err.Error(), "correct the parameter")
	}
	list, next, err := c.Archive.Acts(c.R.Context(), f, p)
	return api.Acts{Acts: append([]store.Act{}, list...), Next: next}, err
}

func ledgerReport(c *web.Call) (api.Ledger, error) {
	if c.Ledger == nil {
		return api.Ledger{Accounts: []api.Account{}}, nil
	}
	report, err := c.Ledger.Report(c.R.Context())
	if err != nil {
		return api.Ledger{}, err
	}
	return api.LedgerOf(report), nil
}

func doctorReport(c *web.Call) (doctor.Report, error) {
	r, err := c.Figures.Report(c.R.Context())
	if err != nil {
		return r, &fault.Failure{
			Status: http.StatusServiceUnavailable, Text: "the broker was not checked: " + err.Error(),
			Advice: "start the console with --management URL, or check that this URL works",
		}
	}
	return r, nil
}

// created responds with a new replay.
func created(c *web.Call, r *failed.Replay) error {
	return c.Write(http.StatusCreated, api.ReplayOf(*r))
}
