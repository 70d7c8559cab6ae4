package console

import (
	_ "embed"
	"net/http"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/api"
)

//go:embed openapi.json
var description []byte

// apiRoutes are the JSON API.
func (c *Console) apiRoutes() []route {
	return append([]route{
		{method: "GET", path: "/api/v1/openapi.json", role: View, handle: (*call).describe},
		{method: "GET", path: "/api/v1/me", role: View, handle: (*call).apiMe},

		{method: "GET", path: "/api/v1/messages", role: View, query: slices.Concat(api.FilterNames, pageNames), handle: (*call).apiMessages},
		{method: "GET", path: "/api/v1/messages/count", role: View, query: api.FilterNames, handle: (*call).apiCount},
		{method: "GET", path: "/api/v1/messages/export", role: View, query: api.FilterNames, handle: (*call).apiExport},
		{method: "POST", path: "/api/v1/messages/import", role: Admin, body: anyBody, handle: (*call).apiImport},
		{method: "GET", path: "/api/v1/messages/{id}", role: View, handle: (*call).apiMessage},
		{method: "GET", path: "/api/v1/messages/{id}/body", role: View, query: []string{"original"}, handle: (*call).apiBody},
		{method: "GET", path: "/api/v1/messages/{id}/diff", role: View, handle: (*call).apiDiff},
		{method: "GET", path: "/api/v1/messages/{id}/revisions", role: View, handle: (*call).apiRevisions},
		{method: "GET", path: "/api/v1/messages/{id}/revisions/{number}", role: View, handle: (*call).apiRevision},
		{method: "PUT", path: "/api/v1/messages/{id}/edit", role: Operate, body: editBody, handle: (*call).apiEdit},
		{method: "DELETE", path: "/api/v1/messages/{id}/edit", role: Operate, query: []string{"revision"}, handle: (*call).apiRevert},
		{method: "POST", path: "/api/v1/messages/{id}/replay", role: Operate, body: editBody, handle: (*call).apiEditAndReplay},
		{method: "POST", path: "/api/v1/discard", role: Operate, query: dryRunName, handle: (*call).apiDiscard},
		{method: "POST", path: "/api/v1/restore", role: Operate, query: dryRunName, handle: (*call).apiRestore},
		{method: "POST", path: "/api/v1/purge", role: Admin, query: dryRunName, handle: (*call).apiPurge},

		{method: "GET", path: "/api/v1/groups", role: View, query: slices.Concat(api.GroupNames, pageNames), handle: (*call).apiGroups},
		{method: "GET", path: "/api/v1/groups/{id}", role: View, handle: (*call).apiGroup},
		{method: "GET", path: "/api/v1/queues", role: View, handle: (*call).apiQueues},
		{method: "GET", path: "/api/v1/ledger", role: View, handle: (*call).apiLedger},
		{method: "POST", path: "/api/v1/ledger/accept", role: Operate, handle: (*call).apiAccept},

		{method: "GET", path: "/api/v1/replays", role: View, query: pageNames, handle: (*call).apiReplays},
		{method: "POST", path: "/api/v1/replays", role: Operate, query: dryRunName, handle: (*call).apiBeginReplay},
		{method: "GET", path: "/api/v1/replays/{id}", role: View, handle: (*call).apiReplay},
		{method: "POST", path: "/api/v1/replays/{id}/cancel", role: Operate, handle: (*call).apiCancel},

		{method: "GET", path: "/api/v1/acts", role: View, query: pageNames, handle: (*call).apiActs},
	}, absentRoutes()...)
}

func (c *call) describe() error {
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = c.w.Write(description) // to nobody, if it fails: they have gone
	return nil
}

func (c *call) apiMe() error {
	return c.ok(api.Me{Actor: string(c.who.actor), Role: c.who.role.String()})
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// absentRoutes answer where there is nothing, in JSON. They have methods, so that
// they do not conflict with a page for all else.
func absentRoutes() []route {
	var absent []route
	for _, method := range methods {
		absent = append(absent, route{method: method, path: "/api/", role: View, query: anyParams, handle: (*call).apiAbsent})
	}
	return absent
}

func (c *call) apiAbsent() error {
	var allowed []string
	for _, method := range methods {
		r := c.r.Clone(c.r.Context())
		r.Method = method
		if _, pattern := c.mux.Handler(r); strings.Contains(pattern, "/api/v1/") {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return &failure{
			status: http.StatusNotFound,
			text:   "there is nothing at this path",
			advice: "/api/v1/openapi.json says what there is",
		}
	}
	c.w.Header().Set("Allow", strings.Join(slices.Compact(allowed), ", "))
	return &failure{
		status: http.StatusMethodNotAllowed,
		text:   "this path does not take " + c.r.Method,
		advice: "use " + strings.Join(allowed, " or "),
	}
}
