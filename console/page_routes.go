package console

import (
	"net/http"
	"net/url"
)

// pages are what people see, with what they share.
type pages struct {
	broker *broker
	live   *live
}

// pageRoutes are the pages.
func (c *Console) pageRoutes() []route {
	p := &pages{}
	if m := c.cfg.Management; m != nil {
		p.broker = newBroker(m.URL, m.User, m.Password, m.VHost)
	}
	p.live = newLive(c.cfg.Archive, p.broker)
	return []route{
		{method: "GET", path: "/{$}", role: View, handle: p.overview},
		{method: "GET", path: "/groups", role: View, handle: p.groups},
		{method: "GET", path: "/groups/{id}", role: View, handle: p.group},
		{method: "GET", path: "/messages", role: View, handle: p.messages},
		{method: "GET", path: "/messages/{id}", role: View, handle: p.message},
		{method: "GET", path: "/messages/{id}/body", role: View, handle: p.body},
		{method: "GET", path: "/messages/{id}/revisions/{number}", role: View, handle: p.revision},
		{method: "GET", path: "/messages/{id}/edit", role: Operate, handle: p.editForm},
		{method: "POST", path: "/messages/{id}/edit", role: Operate, body: editBody, handle: p.edit},
		{method: "POST", path: "/messages/{id}/revert", role: Operate, handle: p.revert},
		{method: "GET", path: "/discard", role: Operate, handle: p.discardForm},
		{method: "POST", path: "/discard/picked", role: Operate, handle: p.discardForm},
		{method: "POST", path: "/discard", role: Operate, handle: p.discard},
		{method: "POST", path: "/restore", role: Operate, handle: p.restore},
		{method: "GET", path: "/replays", role: View, handle: p.replays},
		{method: "GET", path: "/replays/new", role: Operate, handle: p.replayForm},
		{method: "POST", path: "/replays/picked", role: Operate, handle: p.replayForm},
		{method: "POST", path: "/replays", role: Operate, handle: p.beginReplay},
		{method: "GET", path: "/replays/{id}", role: View, handle: p.replay},
		{method: "POST", path: "/replays/{id}/cancel", role: Operate, handle: p.cancelReplay},
		{method: "GET", path: "/topology", role: View, handle: p.topology},
		{method: "GET", path: "/ledger", role: View, handle: p.ledger},
		{method: "POST", path: "/ledger/accept", role: Operate, handle: p.acceptLedger},
		{method: "GET", path: "/audit", role: View, handle: p.audit},
		{method: "GET", path: "/live", role: View, handle: p.live.serve},
		{method: "GET", path: "/assets/{file}", role: Nobody, handle: serveAsset},
		{path: "/", role: View, handle: noPage},
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

// form are the fields of a form that was sent.
func (c *call) form() (url.Values, error) {
	if err := c.r.ParseForm(); err != nil {
		return nil, badRequest("the form cannot be read: "+err.Error(), "send it as the page does")
	}
	return c.r.PostForm, nil
}

// seeOther sends the browser to a page after something was done.
func (c *call) seeOther(path string, query url.Values) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	http.Redirect(c.w, c.r, path, http.StatusSeeOther)
	return nil
}
