package pages

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/archive/waiting"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
)

var (
	waitingDoneNames = []string{"act", "done", "gone", "unsure", "left"}
	waitingActNames  = append([]string{"do", "all", "at_most"}, store.WaitingNames...)
)

// waitingVerbs contains the label and the past tense of each act on waiting messages.
var waitingVerbs = map[waiting.Do][2]string{
	waiting.RetryNow: {"Retry now", "retried"}, waiting.Postpone: {"Postpone", "postponed"}, waiting.ParkNow: {"Park", "parked"},
}

// waitingLinks are the URLs of the forms of the acts.
type waitingLinks struct{ Retry, Postpone, Park template.URL }

func linksOf(f store.WaitingFilter) waitingLinks {
	to := func(do waiting.Do) template.URL {
		v := f.Values()
		if len(v) == 0 {
			v.Set("all", "true")
		}
		v.Set("do", string(do))
		return web.Href("/retrying/act", v)
	}
	return waitingLinks{to(waiting.RetryNow), to(waiting.Postpone), to(waiting.ParkNow)}
}

type waitingGroupRow struct {
	store.WaitingGroup
	Name       string
	Href       template.URL // the list of the group's messages
	FailedHref template.URL // the group of failed messages; "": none
	waitingLinks
}

type waitingRow struct {
	store.Waiting
	IsDue bool
	waitingLinks
}

// waitingSelect is a select field of the filter.
type waitingSelect struct {
	Name, Label string
	Options     []waitingOption
}

type waitingOption struct {
	Value, Text string
	Selected    bool
}

// selectOf returns a field with the given options. An option consists of two arguments, the value and the label. The
// URL determines the selected value.
func selectOf(q url.Values, name, label string, options ...string) waitingSelect {
	s := waitingSelect{Name: name, Label: label}
	found := false
	for i := 0; i < len(options); i += 2 {
		selected := options[i] == q.Get(name)
		found = found || selected
		s.Options = append(s.Options, waitingOption{options[i], options[i+1], selected})
	}
	if !found {
		s.Options = append(s.Options, waitingOption{q.Get(name), brief.Visible(q.Get(name)), true})
	}
	return s
}

// waitingSelects returns the fields of the filter.
func waitingSelects(c *web.Call, q url.Values) ([]waitingSelect, error) {
	queues, err := c.Archive.WaitingQueues(c.R.Context(), store.WaitingFilter{})
	names := []string{"", "All queues"}
	for _, w := range queues {
		f := store.WaitingFilter{Queue: w.Queue}
		names = append(names, f.Values().Get("queue"), brief.Visible(string(w.Queue)))
	}
	return []waitingSelect{
		selectOf(q, "queue", "Queue", names...),
		selectOf(q, "attempt", "Attempts", "", "Any attempts", "2", "2 or more", "3", "3 or more", "5", "5 or more", "10", "10 or more"),
		selectOf(q, "before", "Due", "", "Due any time", "10m", "Within 10 minutes", "1h", "Within 1 hour", "8h", "Within 8 hours", "24h", "Within 1 day"),
	}, err
}

// retrying lists the messages that wait for a retry.
func (p *Pages) retrying(c *web.Call) error {
	query := web.Only(c.Params, store.WaitingNames)
	data := struct {
		Form     url.Values
		Selects  []waitingSelect
		Wrong    wrong
		TopNames []string
		Summary  api.WaitingSummary
		Groups   []waitingGroupRow
		Rows     []waitingRow
		Next     template.URL
		Sought   bool
		Done     string
		Left     bool
		All      waitingLinks
		Room     int
		Known    bool
	}{
		Form: query, TopNames: []string{"queue", "group", "error", "attempt", "before", "id"}, Sought: len(query) > 0,
		Room: store.MaxWaiting, Known: c.Rescheduler != nil,
	}
	page1 := page{Title: "Retrying", Nav: "retrying"}
	var err error
	if data.Selects, err = waitingSelects(c, query); err != nil {
		return err
	}
	f, err := store.ParseWaitingFilter(query, c.Clock())
	if err != nil {
		data.Wrong, _, _ = wrongIn(fault.BadFilter(err), data.TopNames...)
		if data.Wrong.Text == "" {
			return fault.BadFilter(err)
		}
		return render(c, http.StatusBadRequest, "retrying", page1, data)
	}
	if data.Summary, err = c.WaitingSummary(f); err != nil {
		return err
	}
	list, next, err := c.Archive.Waiting(c.R.Context(), f, store.Page{After: c.Params.Get("after")})
	if err != nil {
		return err
	}
	for _, w := range list {
		data.Rows = append(data.Rows, waitingRow{w, !w.Due.After(c.Clock()), linksOf(store.WaitingFilter{IDs: []store.WaitingID{w.ID}})})
	}
	for _, g := range data.Summary.Groups {
		row := waitingGroupRow{WaitingGroup: g, Name: show.FirstLine(g.Text), Href: web.Href("/retrying", url.Values{"group": {g.Key}})}
		if row.Name == "" {
			row.Name = "No error"
		}
		if g.Failed != 0 {
			row.FailedHref = web.Href(fmt.Sprintf("/groups/%d", g.Failed), nil)
		}
		narrow := f
		narrow.Group = g.Key
		row.waitingLinks = linksOf(narrow)
		data.Groups = append(data.Groups, row)
	}
	data.Next, data.All = nextPage("/retrying", query, next), linksOf(f)
	data.Done, data.Left = waitingFlash(c.Params)
	return render(c, http.StatusOK, "retrying", page1, data)
}

// countOf returns the parameter of a redirect that counts messages.
func countOf(v url.Values, name string) int64 {
	n, _ := strconv.ParseInt(v.Get(name), 10, 64)
	return max(0, n)
}

// waitingFlash describes the result of the act that led to the page. It sets left if some of the selected messages may
// be unchanged.
func waitingFlash(v url.Values) (text string, left bool) {
	verb, ok := waitingVerbs[waiting.Do(v.Get("act"))]
	if !ok {
		return "", false
	}
	n := func(name string) int64 { return countOf(v, name) }
	text = show.Plural(n("done"), "message") + " " + verb[1] + "."
	if n("gone") > 0 {
		text += " " + show.Thousands(n("gone")) + " no longer waiting."
	}
	if n("unsure") > 0 {
		text += " The connection was lost. " + show.Thousands(n("unsure")) + " may be unchanged, done or duplicated."
	}
	if n("left") > 0 {
		text += " " + show.Thousands(n("left")) + " unchanged."
	}
	return text, n("left")+n("unsure") > 0
}

// waitingForm is the confirmation form of an act on waiting messages.
type waitingForm struct {
	Do             waiting.Do
	Verb           string
	Words          string
	N              int64
	Fields         []pair
	Delay, Reason  string
	Problem, Where string // problem, and name of the field with the problem
	Back           template.URL
}

// askWaiting shows the form of an act. The selection comes from the URL or, if the user picked messages, from a form.
func (p *Pages) askWaiting(c *web.Call) error {
	v, err := selectionValues(c)
	if err != nil {
		return err
	}
	form, _, err := waitingFormOf(c, v)
	if err != nil {
		return err
	}
	return showWaitingForm(c, http.StatusOK, form)
}

func showWaitingForm(c *web.Call, status int, form *waitingForm) error {
	return render(c, status, "retrying_act", page{Title: form.Verb, Nav: "retrying"}, form)
}

// waitingFormOf reads the selection of an act and counts the messages.
func waitingFormOf(c *web.Call, v url.Values) (*waitingForm, waiting.Act, error) {
	do := waiting.Do(v.Get("do"))
	verb, ok := waitingVerbs[do]
	if !ok {
		return nil, waiting.Act{}, fault.BadRequest(fmt.Sprintf("do must be retry, postpone or park: got %s", brief.Quoted(string(do))), "correct the form")
	}
	f, err := store.ParseWaitingFilter(web.Only(v, store.WaitingNames), c.Clock())
	if err != nil {
		return nil, waiting.Act{}, fault.BadFilter(err)
	}
	act := waiting.Act{Do: do, Filter: f, All: v.Get("all") == "true"}
	checked := act
	if do == waiting.Postpone {
		checked.Delay = params.Duration(waiting.MinPostpone)
	}
	if err := web.CheckWaiting(checked); err != nil {
		return nil, act, err
	}
	counts, err := c.Archive.CountWaiting(c.R.Context(), act.Filter)
	if err != nil {
		return nil, act, err
	}
	fields := f.Values()
	fields.Set("do", string(do))
	fields.Set("at_most", strconv.FormatInt(counts.Messages, 10))
	if act.All {
		fields.Set("all", "true")
	}
	back := f
	if len(f.IDs) > 1 { // picked from the list
		back.IDs = nil
	}
	return &waitingForm{
		Do: do, Verb: verb[0], Words: waitingWords(f), N: counts.Messages, Fields: pairs(fields), Delay: "2h", Back: web.Href("/retrying", back.Values()),
	}, act, nil
}

// waitingWords describes a filter.
func waitingWords(f store.WaitingFilter) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	switch len(f.IDs) {
	case 0:
	case 1:
		add("message %d", f.IDs[0])
	default:
		add("%d selected", len(f.IDs))
	}
	if f.Queue != "" {
		add("queue %s", brief.Visible(string(f.Queue)))
	}
	if f.Group != "" {
		add("group %s", brief.Clip(f.Group, 8))
	}
	if f.Error != "" {
		add("error contains %s", brief.Visible(string(f.Error)))
	}
	if f.Attempt > 0 {
		add("%d attempts or more", f.Attempt)
	}
	if !f.Before.IsZero() {
		add("due before %s", show.Exact(f.Before))
	}
	if len(words) == 0 {
		return "All waiting messages."
	}
	return "Waiting messages: " + strings.Join(words, ", ") + "."
}

// actOnWaiting processes the submitted form.
func (p *Pages) actOnWaiting(c *web.Call) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	form, act, err := waitingFormOf(c, v)
	if err != nil {
		return err
	}
	if act.AtMost, err = strconv.ParseInt(v.Get("at_most"), 10, 64); err != nil || act.AtMost < 1 {
		return errNoCount
	}
	act.Reason, form.Reason = strings.TrimSpace(v.Get("reason")), v.Get("reason")
	if act.Do == waiting.Postpone {
		form.Delay = v.Get("delay")
		if err := act.Delay.UnmarshalText([]byte(form.Delay)); err != nil || act.Validate() != nil {
			form.Problem, form.Where = "Enter a time from 1s to 1193h, such as 30m or 2d.", "delay"
			return showWaitingForm(c, http.StatusUnprocessableEntity, form)
		}
	}
	if err := web.CheckWaiting(act); err != nil {
		return err
	}
	if err := claimSubmission(c, v); err != nil {
		return err
	}
	res, err := c.ActOnWaiting(act)
	if errors.Is(err, failed.ErrState) {
		form.Problem = numberChanged(act.AtMost, form.N)
		return showWaitingForm(c, http.StatusConflict, form)
	}
	if err != nil {
		return err
	}
	var left int64
	for _, r := range res.Refused {
		left += r.Messages
	}
	q := url.Values{"act": {string(act.Do)}}
	for name, n := range map[string]int64{"done": res.Done, "gone": res.Gone, "unsure": res.Unsure, "left": left} {
		q.Set(name, strconv.FormatInt(n, 10))
	}
	return c.SeeOther("/retrying", q)
}
