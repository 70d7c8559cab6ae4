// Package jsonapi has the handlers of the JSON API below /api/v1. Its types are those of
// internal/api; openapi.json describes it.
package jsonapi

import (
	_ "embed"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/console/internal/access"
	"github.com/reprisemq/reprise/console/internal/fault"
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/internal/api"
)

//go:embed openapi.json
var Description []byte

// Routes are the JSON API.
func Routes() []web.Route {
	return append([]web.Route{
		{Method: "GET", Path: "/api/v1/openapi.json", Role: access.View, Handle: describe},
		{Method: "GET", Path: "/api/v1/me", Role: access.View, Handle: me},

		{Method: "GET", Path: "/api/v1/messages", Role: access.View, Query: slices.Concat(api.FilterNames, web.PageNames), Handle: messages},
		{Method: "GET", Path: "/api/v1/messages/count", Role: access.View, Query: api.FilterNames, Handle: count},
		{Method: "GET", Path: "/api/v1/messages/export", Role: access.View, Query: api.FilterNames, Handle: exportMessages},
		{Method: "POST", Path: "/api/v1/messages/import", Role: access.Admin, Body: web.AnyBody, Handle: importMessages},
		{Method: "GET", Path: "/api/v1/messages/{id}", Role: access.View, Handle: message},
		{Method: "GET", Path: "/api/v1/messages/{id}/body", Role: access.View, Query: []string{"original"}, Handle: body},
		{Method: "GET", Path: "/api/v1/messages/{id}/diff", Role: access.View, Handle: diff},
		{Method: "GET", Path: "/api/v1/messages/{id}/revisions", Role: access.View, Handle: revisions},
		{Method: "GET", Path: "/api/v1/messages/{id}/revisions/{number}", Role: access.View, Handle: revision},
		{Method: "PUT", Path: "/api/v1/messages/{id}/edit", Role: access.Operate, Body: web.EditBody, Handle: edit},
		{Method: "DELETE", Path: "/api/v1/messages/{id}/edit", Role: access.Operate, Query: []string{"revision"}, Handle: revert},
		{Method: "POST", Path: "/api/v1/messages/{id}/replay", Role: access.Operate, Body: web.EditBody, Handle: editAndReplay},
		{Method: "POST", Path: "/api/v1/discard", Role: access.Operate, Query: web.DryRunName, Handle: discard},
		{Method: "POST", Path: "/api/v1/restore", Role: access.Operate, Query: web.DryRunName, Handle: restore},
		{Method: "POST", Path: "/api/v1/purge", Role: access.Admin, Query: web.DryRunName, Handle: purge},

		{Method: "GET", Path: "/api/v1/groups", Role: access.View, Query: slices.Concat(api.GroupNames, web.PageNames), Handle: groups},
		{Method: "GET", Path: "/api/v1/groups/{id}", Role: access.View, Handle: group},
		{Method: "GET", Path: "/api/v1/queues", Role: access.View, Handle: queues},
		{Method: "GET", Path: "/api/v1/ledger", Role: access.View, Handle: ledger},
		{Method: "POST", Path: "/api/v1/ledger/accept", Role: access.Operate, Handle: accept},

		{Method: "GET", Path: "/api/v1/replays", Role: access.View, Query: web.PageNames, Handle: replays},
		{Method: "POST", Path: "/api/v1/replays", Role: access.Operate, Query: web.DryRunName, Handle: beginReplay},
		{Method: "GET", Path: "/api/v1/replays/{id}", Role: access.View, Handle: replay},
		{Method: "POST", Path: "/api/v1/replays/{id}/cancel", Role: access.Operate, Handle: cancel},

		{Method: "GET", Path: "/api/v1/acts", Role: access.View, Query: web.PageNames, Handle: acts},
	}, absentRoutes()...)
}

func describe(c *web.Call) error {
	c.W.Header().Set("Content-Type", "application/json")
	_, _ = c.W.Write(Description) // to nobody, if it fails: they have gone
	return nil
}

func me(c *web.Call) error {
	return c.OK(api.Me{Actor: string(c.Who.Actor), Role: c.Who.Role.String()})
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// absentRoutes answer where there is nothing, in JSON. They have methods, so that
// they do not conflict with a page for all else.
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
		return &fault.Failure{
			Status: http.StatusNotFound,
			Text:   "there is nothing at this path",
			Advice: "/api/v1/openapi.json says what there is",
		}
	}
	c.W.Header().Set("Allow", strings.Join(slices.Compact(allowed), ", "))
	return &fault.Failure{
		Status: http.StatusMethodNotAllowed,
		Text:   "this path does not take " + c.R.Method,
		Advice: "use " + strings.Join(allowed, " or "),
	}
}

// id returns the number of a thing in the path.
func id(c *web.Call) (int64, error) { return pathNumber(c, "id") }

func pathNumber(c *web.Call, name string) (int64, error) {
	text := c.R.PathValue(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fault.BadRequest("there is no number "+strconv.Quote(text), "write a number from 1 on in the path, as a list shows it")
	}
	return n, nil
}
