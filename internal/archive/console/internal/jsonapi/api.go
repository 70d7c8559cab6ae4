// Package jsonapi implements the JSON API under /api/v1. Package internal/archive/api defines the types of the API, and
// openapi.json describes the API.
package jsonapi

import (
	"bytes"
	_ "embed"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/waiting"
	"github.com/reprisemq/reprise/internal/brief"
)

// Description is the OpenAPI description of the API.
//
//go:embed openapi.json
var Description []byte

var (
	pageNames  = []string{"after", "size"}
	dryRunName = []string{"dry_run"}
)

// Routes returns all routes of the API.
func Routes() []web.Route {
	return append([]web.Route{
		{Method: "GET", Path: "/api/v1/openapi.json", Role: access.View, Handle: describe},
		{Method: "GET", Path: "/api/v1/me", Role: access.View, Handle: answer(me)},

		{Method: "GET", Path: "/api/v1/messages", Role: access.View, Query: slices.Concat(api.FilterNames, pageNames), Handle: page(messages)},
		{Method: "GET", Path: "/api/v1/messages/count", Role: access.View, Query: api.FilterNames, Handle: answer(count)},
		{Method: "GET", Path: "/api/v1/messages/export", Role: access.View, Query: append(slices.Clone(api.FilterNames), "format"), Long: true, Handle: exportMessages},
		{Method: "POST", Path: "/api/v1/messages/import", Role: access.Admin, Body: web.AnyBody, Handle: answer(importMessages)},
		{Method: "GET", Path: "/api/v1/messages/{id}", Role: access.View, Handle: byID(message)},
		{Method: "GET", Path: "/api/v1/messages/{id}/body", Role: access.View, Query: []string{"original"}, Handle: body},
		{Method: "GET", Path: "/api/v1/messages/{id}/diff", Role: access.View, Handle: byID(diff)},
		{Method: "GET", Path: "/api/v1/messages/{id}/revisions", Role: access.View, Handle: byID(revisions)},
		{Method: "GET", Path: "/api/v1/messages/{id}/revisions/{number}", Role: access.View, Handle: byID(revision)},
		{Method: "PUT", Path: "/api/v1/messages/{id}/edit", Role: access.Operate, Body: web.EditBody, Handle: byID(edit)},
		{Method: "DELETE", Path: "/api/v1/messages/{id}/edit", Role: access.Operate, Query: []string{"revision"}, Handle: byID(revert)},
		{Method: "POST", Path: "/api/v1/messages/{id}/replay", Role: access.Operate, Body: web.EditBody, Handle: editAndReplay},
		{Method: "POST", Path: "/api/v1/discard", Role: access.Operate, Query: dryRunName, Handle: act(discard)},
		{Method: "POST", Path: "/api/v1/restore", Role: access.Operate, Query: dryRunName, Handle: act(restore)},
		{Method: "POST", Path: "/api/v1/erase", Role: access.Admin, Query: dryRunName, Handle: answer(erase)},
		{Method: "POST", Path: "/api/v1/purge", Role: access.Admin, Query: dryRunName, Handle: act(purge)},

		{Method: "GET", Path: "/api/v1/groups", Role: access.View, Query: slices.Concat(api.GroupNames, pageNames), Handle: page(groups)},
		{Method: "GET", Path: "/api/v1/groups/{id}", Role: access.View, Handle: byID(group)},
		{Method: "PUT", Path: "/api/v1/groups/{id}/mute", Role: access.Operate, Handle: byID(mute)},
		{Method: "DELETE", Path: "/api/v1/groups/{id}/mute", Role: access.Operate, Handle: byID(unmute)},
		{Method: "POST", Path: "/api/v1/groups/merge", Role: access.Operate, Handle: answer(merge)},
		{Method: "DELETE", Path: "/api/v1/groups/{id}/merge", Role: access.Operate, Handle: byID(unmerge)},
		{Method: "POST", Path: "/api/v1/groups/regroup", Role: access.Operate, Handle: answer(regroup)},
		{Method: "GET", Path: "/api/v1/queues", Role: access.View, Handle: answer(queues)},
		{Method: "POST", Path: "/api/v1/queues/purge", Role: access.Admin, Query: dryRunName, Handle: answer(purgeQueue)},
		{Method: "POST", Path: "/api/v1/publish", Role: access.Operate, Handle: answer(publish)},
		{Method: "GET", Path: "/api/v1/ledger", Role: access.View, Handle: answer(ledgerReport)},
		{Method: "POST", Path: "/api/v1/ledger/accept", Role: access.Operate, Handle: answer(accept)},

		{Method: "GET", Path: "/api/v1/replays", Role: access.View, Query: pageNames, Handle: page(replays)},
		{Method: "POST", Path: "/api/v1/replays", Role: access.Operate, Query: dryRunName, Handle: beginReplay},
		{Method: "GET", Path: "/api/v1/replays/{id}", Role: access.View, Handle: byID(oneReplay)},
		{Method: "POST", Path: "/api/v1/replays/{id}/cancel", Role: access.Operate, Handle: byID(cancel)},

		{Method: "GET", Path: "/api/v1/workers", Role: access.View, Handle: answer(workers)},
		{Method: "POST", Path: "/api/v1/workers/pause", Role: access.Operate, Handle: answer(pauseWorkers)},
		{Method: "POST", Path: "/api/v1/workers/resume", Role: access.Operate, Handle: answer(resumeWorkers)},

		{Method: "GET", Path: "/api/v1/history", Role: access.View, Query: api.HistoryNames, Handle: answer(pastOf)},
		{Method: "GET", Path: "/api/v1/marks", Role: access.View, Handle: answer(marks)},
		{Method: "POST", Path: "/api/v1/marks", Role: access.Operate, Handle: answer(addMark)},
		{Method: "DELETE", Path: "/api/v1/marks/{id}", Role: access.Operate, Handle: byID(removeMark)},

		{Method: "GET", Path: "/api/v1/waiting", Role: access.View, Query: slices.Concat(api.WaitingNames, pageNames), Handle: page(waitingMessages)},
		{Method: "GET", Path: "/api/v1/waiting/summary", Role: access.View, Query: api.WaitingNames, Handle: answer(waitingSummary)},
		{Method: "POST", Path: "/api/v1/waiting/retry", Role: access.Operate, Query: dryRunName, Handle: actOnWaiting(waiting.RetryNow)},
		{Method: "POST", Path: "/api/v1/waiting/postpone", Role: access.Operate, Query: dryRunName, Handle: actOnWaiting(waiting.Postpone)},
		{Method: "POST", Path: "/api/v1/waiting/park", Role: access.Operate, Query: dryRunName, Handle: actOnWaiting(waiting.ParkNow)},

		{Method: "GET", Path: "/api/v1/acts", Role: access.View, Query: slices.Concat(api.ActNames, pageNames), Handle: page(acts)},
	}, absentRoutes()...)
}

type handler = func(*web.Call) error

// answer returns a handler that writes the result of f as JSON.
func answer[T any](f func(*web.Call) (T, error)) handler {
	return func(c *web.Call) error {
		v, err := f(c)
		if err != nil {
			return err
		}
		return c.OK(v)
	}
}

// byID is like answer, but also passes the ID in the path to f.
func byID[T any](f func(*web.Call, int64) (T, error)) handler {
	return answer(func(c *web.Call) (v T, err error) {
		id, err := pathNumber(c, "id")
		if err != nil {
			return v, err
		}
		return f(c, id)
	})
}

func pathNumber(c *web.Call, name string) (int64, error) {
	text := c.R.PathValue(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fault.BadRequest(brief.Quoted(text)+" is not a positive number", "copy the number from a list into the path")
	}
	return n, nil
}

// convert converts the elements of a list. The result is never nil, so that JSON contains [] instead of null.
func convert[From, To any](list []From, to func(From) To) []To {
	shown := make([]To, len(list))
	for i, v := range list {
		shown[i] = to(v)
	}
	return shown
}

func describe(c *web.Call) error {
	c.W.Header().Set("Content-Type", "application/json")
	// server occurs exactly once in the description.
	const server = `"url": "/api/v1"`
	// An error means that the client has disconnected.
	_, _ = c.W.Write(bytes.Replace(Description, []byte(server), []byte(strings.Replace(server, "/", c.Prefix+"/", 1)), 1))
	return nil
}

func me(c *web.Call) (api.Me, error) {
	return api.Me{Actor: string(c.Who.Actor), Role: c.Who.Role.String()}, nil
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// absentRoutes returns routes that respond with a JSON error to unknown paths under /api. Their patterns contain
// methods, so that they do not conflict with the pattern of the not-found page, which matches all other paths.
func absentRoutes() []web.Route {
	var absent []web.Route
	for _, method := range methods {
		absent = append(absent, web.Route{Method: method, Path: "/api/", Role: access.View, Query: web.AnyParams, Handle: notFound})
	}
	return absent
}

func notFound(c *web.Call) error {
	var allowed []string
	for _, method := range methods {
		r := c.R.Clone(c.R.Context())
		r.Method = method
		if c.Routed(r, "/api/v1/") {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return &fault.Failure{Status: http.StatusNotFound, Text: "path not found", Advice: "see /api/v1/openapi.json"}
	}
	c.W.Header().Set("Allow", strings.Join(allowed, ", "))
	return &fault.Failure{
		Status: http.StatusMethodNotAllowed, Text: "this path does not support " + c.R.Method, Advice: "use " + strings.Join(allowed, " or "),
	}
}
