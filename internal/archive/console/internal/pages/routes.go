// Package pages implements the web pages: handlers, templates and assets. A handler loads the data of the page and
// renders templates/NAME.html within templates/_frame.html. The package may import all packages of the console except
// jsonapi.
//
// To add a column to the lists of messages, add a th and a td to the block "messages" of templates/_parts.html. The
// value is a field or method of failed.Summary. For the JSON API, add the field to api.Summary.
// To add a condition to the search, extend failed.FilterParams. The form and the URLs include it automatically.
package pages

import (
	"net/http"
	"slices"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/editor"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/figures"
	"github.com/reprisemq/reprise/internal/archive/console/internal/flow"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// Pages contains the values that the handlers of the pages share. Most handlers are its methods.
type Pages struct {
	Topology []topology.Topology // the topology page draws it in addition to the objects on the broker
	TraceURL string              // contains {trace_id}; "": no traces
	Workers  func() []flow.Worker
	Broker   *figures.Broker
	Done     *figures.DoneRates
	Live     *live
}

// Names of query parameters and form fields, without the names of filters.
var (
	afterName    = []string{"after"}
	pickedName   = []string{"id"}
	planNames    = append([]string{"options", "to", "exchange", "key", "rate", "ramp", "same", "canary", "by_queue_name"}, bulkEditNames...)
	editNames    = append([]string{"base", "revision", "body", "header_name", "header_kind", "header_value", "do"}, editor.PropertyNames()...)
	publishNames = append([]string{"queue", "later", "body", "header_name", "header_kind", "header_value", "do", "submission"}, editor.PropertyNames()...)
)

// Routes returns the routes of all pages.
func (p *Pages) Routes() []web.Route {
	return append([]web.Route{
		{Method: "GET", Path: "/{$}", Role: access.View, Handle: p.overview},
		{Method: "GET", Path: "/groups", Role: access.View, Query: slices.Concat(api.GroupNames, afterName), Blanks: true, Handle: p.groups},
		{Method: "GET", Path: "/groups/{id}", Role: access.View, Query: slices.Concat([]string{"state", "span"}, afterName, web.FlashNames), Handle: byID(p.group)},
		{Method: "GET", Path: "/groups/merge", Role: access.Operate, Query: pickedName, Handle: p.askMerge},
		{Method: "POST", Path: "/groups/merge", Role: access.Operate, Form: append([]string{"name"}, pickedName...), Handle: p.merge},
		{Method: "POST", Path: "/groups/{id}/unmerge", Role: access.Operate, Handle: byID(p.unmerge)},
		{Method: "POST", Path: "/groups/{id}/mute", Role: access.Operate, Form: []string{"seconds"}, Handle: byID(p.mute)},
		{Method: "POST", Path: "/groups/{id}/unmute", Role: access.Operate, Handle: byID(p.unmute)},
		{Method: "GET", Path: "/messages", Role: access.View, Query: slices.Concat(failed.FilterNames, afterName, web.FlashNames), Blanks: true, Handle: p.messages},
		{Method: "GET", Path: "/messages/{id}", Role: access.View, Query: web.FlashNames, Handle: byID(p.message)},
		{Method: "GET", Path: "/messages/{id}/body", Role: access.View, Query: []string{"original"}, Handle: byID(p.body)},
		{Method: "GET", Path: "/messages/{id}/revisions/{number}", Role: access.View, Handle: byID(p.revision)},
		{Method: "GET", Path: "/messages/{id}/edit", Role: access.Operate, Handle: byID(p.editForm)},
		{Method: "POST", Path: "/messages/{id}/edit", Role: access.Operate, Body: web.EditBody, Form: editNames, Handle: byID(p.edit)},
		{Method: "POST", Path: "/messages/{id}/revert", Role: access.Operate, Form: []string{"revision"}, Handle: byID(p.revert)},
		{Method: "GET", Path: "/discard", Role: access.Operate, Query: failed.SelectionNames, Handle: discardPage.ask},
		{Method: "POST", Path: "/discard/picked", Role: access.Operate, Form: pickedName, Handle: discardPage.ask},
		{Method: "POST", Path: "/discard", Role: access.Operate, Form: slices.Concat(failed.SelectionNames, []string{"reason", "submission"}), Handle: discardPage.do},
		{Method: "GET", Path: "/restore", Role: access.Operate, Query: failed.SelectionNames, Handle: restorePage.ask},
		{Method: "POST", Path: "/restore", Role: access.Operate, Form: slices.Concat(failed.SelectionNames, []string{"submission"}), Handle: restorePage.do},
		{Method: "GET", Path: "/erase", Role: access.Admin, Query: failed.SelectionNames, Long: true, Handle: p.askErase},
		{Method: "POST", Path: "/erase/picked", Role: access.Admin, Form: pickedName, Handle: p.askErase},
		{Method: "POST", Path: "/erase", Role: access.Admin, Form: slices.Concat(failed.SelectionNames, []string{"reason", "count", "submission"}), Handle: p.erase},
		{Method: "GET", Path: "/replays", Role: access.View, Query: afterName, Handle: p.replays},
		{Method: "GET", Path: "/replays/new", Role: access.Operate, Query: failed.SelectionNames, Handle: p.replayForm},
		{Method: "POST", Path: "/replays/picked", Role: access.Operate, Form: pickedName, Handle: p.replayForm},
		{Method: "POST", Path: "/replays", Role: access.Operate, Form: slices.Concat(failed.SelectionNames, planNames, []string{"submission"}), Handle: p.beginReplay},
		{Method: "GET", Path: "/replays/{id}", Role: access.View, Query: web.FlashNames, Handle: byID(p.replay)},
		{Method: "POST", Path: "/replays/{id}/cancel", Role: access.Operate, Handle: byID(p.cancelReplay)},
		{Method: "GET", Path: "/retrying", Role: access.View, Query: slices.Concat(store.WaitingNames, afterName, waitingDoneNames), Blanks: true, Handle: p.retrying},
		{Method: "GET", Path: "/retrying/act", Role: access.Operate, Query: waitingActNames, Handle: p.askWaiting},
		{Method: "POST", Path: "/retrying/picked", Role: access.Operate, Form: []string{"id", "do"}, Handle: p.askWaiting},
		{Method: "POST", Path: "/retrying/act", Role: access.Operate, Form: append([]string{"delay", "reason", "submission"}, waitingActNames...), Handle: p.actOnWaiting},
		{Method: "GET", Path: "/scheduled", Role: access.View, Query: slices.Concat(api.ScheduledNames, afterName, scheduledDoneNames), Blanks: true, Handle: p.scheduled},
		{Method: "GET", Path: "/scheduled/{id}", Role: access.Operate, Handle: byID(p.oneScheduled)},
		{Method: "GET", Path: "/scheduled/act", Role: access.Operate, Query: scheduledActNames, Handle: p.askScheduled},
		{Method: "POST", Path: "/scheduled/picked", Role: access.Operate, Form: []string{"id", "do"}, Handle: p.askScheduled},
		{Method: "POST", Path: "/scheduled/act", Role: access.Operate, Form: scheduledFormNames, Handle: p.actOnScheduled},
		{Method: "POST", Path: "/scheduled/run", Role: access.Operate, Form: runNames, Handle: p.runScheduled},
		{Method: "GET", Path: "/workers", Role: access.View, Query: web.FlashNames, Handle: p.workers},
		{Method: "GET", Path: "/workers/pause", Role: access.Operate, Query: workerNames, Handle: askWorkers(false)},
		{Method: "POST", Path: "/workers/pause", Role: access.Operate, Form: pauseNames, Handle: p.pauseWorkers},
		{Method: "GET", Path: "/workers/resume", Role: access.Operate, Query: workerNames, Handle: askWorkers(true)},
		{Method: "POST", Path: "/workers/resume", Role: access.Operate, Form: workerNames, Handle: p.resumeWorkers},
		{Method: "GET", Path: "/workers/key", Role: access.Operate, Query: keyNames, Handle: p.askKey},
		{Method: "POST", Path: "/workers/key", Role: access.Operate, Form: keyFormNames, Handle: p.actOnKey},
		{Method: "GET", Path: "/history", Role: access.View, Query: api.HistoryNames, Handle: p.history},
		{Method: "POST", Path: "/history/marks", Role: access.Operate, Form: slices.Concat(api.HistoryNames, []string{"text", "at", "only"}), Handle: p.addMark},
		{Method: "GET", Path: "/topology", Role: access.View, Query: web.FlashNames, Handle: p.topology},
		{Method: "GET", Path: "/doctor", Role: access.Operate, Long: true, Handle: p.doctor},
		{Method: "GET", Path: "/publish", Role: access.Operate, Query: []string{"queue"}, Handle: p.publishForm},
		{Method: "POST", Path: "/publish", Role: access.Operate, Body: web.EditBody, Form: publishNames, Handle: p.publish},
		{Method: "GET", Path: "/queues/peek", Role: access.Operate, Query: []string{"queue"}, Handle: p.askPeek},
		{Method: "POST", Path: "/queues/peek", Role: access.Operate, Form: []string{"queue", "limit", "counts"}, Handle: p.peek},
		{Method: "GET", Path: "/queues/purge", Role: access.Admin, Query: []string{"queue"}, Handle: p.askPurge},
		{Method: "POST", Path: "/queues/purge", Role: access.Admin, Form: []string{"queue", "at_most", "reason", "name", "drop", "submission"}, Handle: p.purge},
		{Method: "GET", Path: "/ledger", Role: access.View, Handle: p.ledger},
		{Method: "POST", Path: "/ledger/accept", Role: access.Operate, Form: []string{"account", "reason"}, Handle: p.acceptLedger},
		{Method: "GET", Path: "/audit", Role: access.View, Query: slices.Concat(api.ActNames, afterName), Blanks: true, Handle: p.audit},
		{Method: "GET", Path: "/live", Role: access.View, Long: true, Handle: p.Live.serve},
		{Method: "GET", Path: "/assets/{file}", Role: access.Nobody, Handle: serveAsset},
		{Path: "/", Role: access.View, Query: web.AnyParams, Handle: noPage},
	}, loginRoutes...)
}

func noPage(*web.Call) error {
	return &fault.Failure{Status: http.StatusNotFound, Text: "page not found", Advice: "start at the overview, or search the messages"}
}

// FailPage renders an error as a page.
func FailPage(c *web.Call, f *fault.Failure) {
	if c.R.Header.Get("HX-Request") != "" {
		// htmx does not display the response to a failed request for a part of a page.
		http.Error(c.W, f.Text+"\n"+f.Advice, f.Status)
		return
	}
	_ = render(c, f.Status, "failure", page{Title: sentence(f.Text)}, struct {
		Text, Advice string
		Login        bool
	}{sentence(f.Text), sentence(f.Advice), f.Status == http.StatusUnauthorized})
}

// loginPage renders the login form. The parameter next is the page after the login, and problem is the failure of the
// previous attempt, or nil.
func loginPage(c *web.Call, next string, problem *fault.Failure) error {
	status := http.StatusOK
	data := struct{ Next, Problem, Advice string }{Next: next}
	if problem != nil {
		status, data.Problem, data.Advice = problem.Status, sentence(problem.Text), sentence(problem.Advice)
	}
	return render(c, status, "login", page{Title: "Sign in"}, data)
}
