package console

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/reprisemq/reprise/internal/api"
)

// pages are what people see, with what they share.
type pages struct {
	broker *broker
	done   *doneRates
	live   *live
}

// pageRoutes are the pages.
func (c *Console) pageRoutes() []route {
	p := &pages{done: newDoneRates(c.cfg.Ledger)}
	if m := c.cfg.Management; m != nil {
		p.broker = newBroker(m.URL, m.User, m.Password, m.VHost)
	}
	p.live = newLive(c.cfg.Archive, p.broker, p.done)
	return []route{
		{method: "GET", path: "/{$}", role: View, handle: p.overview},
		{method: "GET", path: "/groups", role: View, query: slices.Concat(api.GroupNames, afterName), blanks: true, handle: p.groups},
		{method: "GET", path: "/groups/{id}", role: View, query: slices.Concat([]string{"state", "span"}, afterName, flashNames), handle: p.group},
		{method: "GET", path: "/messages", role: View, query: slices.Concat(api.FilterNames, afterName, flashNames), blanks: true, handle: p.messages},
		{method: "GET", path: "/messages/{id}", role: View, query: flashNames, handle: p.message},
		{method: "GET", path: "/messages/{id}/body", role: View, query: []string{"original"}, handle: p.body},
		{method: "GET", path: "/messages/{id}/revisions/{number}", role: View, handle: p.revision},
		{method: "GET", path: "/messages/{id}/edit", role: Operate, handle: p.editForm},
		{method: "POST", path: "/messages/{id}/edit", role: Operate, body: editBody, form: editNames, handle: p.edit},
		{method: "POST", path: "/messages/{id}/revert", role: Operate, form: []string{"revision"}, handle: p.revert},
		{method: "GET", path: "/discard", role: Operate, query: api.SelectionNames, handle: p.discardForm},
		{method: "POST", path: "/discard/picked", role: Operate, form: pickedName, handle: p.discardForm},
		{method: "POST", path: "/discard", role: Operate, form: slices.Concat(api.SelectionNames, []string{"reason"}), handle: p.discard},
		{method: "GET", path: "/restore", role: Operate, query: api.SelectionNames, handle: p.restoreForm},
		{method: "POST", path: "/restore", role: Operate, form: api.SelectionNames, handle: p.restore},
		{method: "GET", path: "/replays", role: View, query: afterName, handle: p.replays},
		{method: "GET", path: "/replays/new", role: Operate, query: api.SelectionNames, handle: p.replayForm},
		{method: "POST", path: "/replays/picked", role: Operate, form: pickedName, handle: p.replayForm},
		{method: "POST", path: "/replays", role: Operate, form: slices.Concat(api.SelectionNames, planNames), handle: p.beginReplay},
		{method: "GET", path: "/replays/{id}", role: View, query: flashNames, handle: p.replay},
		{method: "POST", path: "/replays/{id}/cancel", role: Operate, handle: p.cancelReplay},
		{method: "GET", path: "/topology", role: View, handle: p.topology},
		{method: "GET", path: "/ledger", role: View, handle: p.ledger},
		{method: "POST", path: "/ledger/accept", role: Operate, form: []string{"account", "reason"}, handle: p.acceptLedger},
		{method: "GET", path: "/audit", role: View, query: afterName, handle: p.audit},
		{method: "GET", path: "/live", role: View, handle: p.live.serve},
		{method: "GET", path: "/assets/{file}", role: Nobody, handle: serveAsset},
		{path: "/", role: View, query: anyParams, handle: noPage},
	}
}

func noPage(*call) error {
	return &failure{status: http.StatusNotFound, text: "there is no such page", advice: "begin at the overview, or search for what you were looking for"}
}

// failPage shows an error on a page.
func (c *call) failPage(f *failure) {
	if c.r.Header.Get("HX-Request") != "" {
		// A part of a page that cannot be had stays as it is.
		http.Error(c.w, f.text+"\n"+f.advice, f.status)
		return
	}
	_ = c.render(f.status, "failure", page{Title: sentence(f.text)}, struct {
		Text, Advice string
		Login        bool
	}{sentence(f.text), sentence(f.advice), f.status == http.StatusUnauthorized})
}

// loginPage asks for a token; next is where to go then, problem what was wrong the
// last time, or nil.
func (c *call) loginPage(next string, problem *failure) error {
	status := http.StatusOK
	data := struct{ Next, Problem, Advice string }{Next: next}
	if problem != nil {
		status, data.Problem, data.Advice = problem.status, sentence(problem.text), sentence(problem.advice)
	}
	return c.render(status, "login", page{Title: "Sign in"}, data)
}

// seeOther sends the browser to a page after something was done.
func (c *call) seeOther(path string, query url.Values) error {
	http.Redirect(c.w, c.r, string(href(path, query)), http.StatusSeeOther)
	return nil
}
