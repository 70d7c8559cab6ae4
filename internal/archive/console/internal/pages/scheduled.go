package pages

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
)

var (
	scheduledDoneNames = []string{"act", "done", "attempted", "late", "ran", "due"}
	scheduledActNames  = append([]string{"do", "all"}, api.ScheduledNames...)
	scheduledFormNames = append([]string{"at_most", "through", "at", "reason", "submission"}, scheduledActNames...)
	runNames           = []string{"app", "name", "submission"}
)

// scheduledVerbs contains the label and the past tense of each act on messages of the outbox.
var scheduledVerbs = map[string][2]string{"send": {"Send now", "sent now"}, "move": {"Move", "moved"}, "cancel": {"Cancel", "canceled"}}

// scheduledLinks are the URLs of the forms of the acts.
type scheduledLinks struct{ Send, Move, Cancel template.URL }

func scheduledLinksOf(f api.ScheduledFilter) scheduledLinks {
	to := func(do string) template.URL {
		v := f.Values()
		if len(v) == 0 {
			v.Set("all", "true")
		}
		v.Set("do", do)
		return web.Href("/scheduled/act", v)
	}
	return scheduledLinks{to("send"), to("move"), to("cancel")}
}

type scheduledRow struct {
	api.Scheduled
	To string // exchange and key
	scheduledLinks
}

// scheduledPage shows the outbox.
type scheduledPage struct {
	Form     url.Values
	Selects  []waitingSelect
	Wrong    wrong
	TopNames []string
	Status   api.OutboxStatus
	Late     bool // the first due message waits longer than usual
	Lag      string
	Cron     []api.CronEntry
	N        int
	Rows     []scheduledRow
	Next     template.URL
	Sought   bool
	Done     string
	Left     bool
	All      scheduledLinks
}

// lateAfter is the lag that the page reports.
const lateAfter = time.Minute

// scheduled lists the messages of the outbox, and the periodic messages.
func (p *Pages) scheduled(c *web.Call) error {
	query := web.Only(c.Params, api.ScheduledNames)
	data := scheduledPage{Form: query, TopNames: []string{"routing_key", "order_key", "message_id", "exchange", "failed", "before", "from", "id"}, Sought: len(query) > 0}
	data.Selects = []waitingSelect{
		selectOf(query, "failed", "Attempts", "", "Any attempts", "true", "With a failed attempt"),
		selectOf(query, "before", "Due", "", "Due any time", "10m", "Within 10 minutes", "1h", "Within 1 hour", "24h", "Within 1 day", "168h", "Within 1 week"),
	}
	frame := page{Title: "Scheduled", Nav: "scheduled"}
	f, err := api.ParseScheduledFilter(query, c.Clock())
	if err != nil {
		data.Wrong, _, _ = wrongIn(fault.BadFilter(err), data.TopNames...)
		return render(c, http.StatusBadRequest, "scheduled", frame, data)
	}
	if data.Status, err = c.OutboxStatus(); err != nil {
		return err
	}
	data.Late, data.Lag = time.Duration(data.Status.Lag) > lateAfter, brief.Duration(time.Duration(data.Status.Lag).Truncate(time.Second))
	cron, err := c.Cron(3)
	if err != nil {
		return err
	}
	data.Cron = cron.Entries
	if data.N, _, err = c.CountScheduled(f); err != nil {
		return err
	}
	list, err := c.Scheduled(f, store.Page{After: c.Params.Get("after")})
	if err != nil {
		return err
	}
	for _, m := range list.Messages {
		data.Rows = append(data.Rows, scheduledRow{m, destinationOf(m.Target), scheduledLinksOf(api.ScheduledFilter{IDs: []int64{m.ID}})})
	}
	data.Next, data.All = nextPage("/scheduled", query, list.Next), scheduledLinksOf(f)
	data.Done, data.Left = scheduledFlash(c.Params)
	return render(c, http.StatusOK, "scheduled", frame, data)
}

func destinationOf(t api.Target) string {
	if t.Exchange == "" {
		return string(t.RoutingKey)
	}
	return string(t.Exchange) + " / " + string(t.RoutingKey)
}

// scheduledFlash describes the result of the act that led to the page. It sets left if some messages are unchanged.
func scheduledFlash(v url.Values) (text string, left bool) {
	if name := v.Get("ran"); name != "" {
		return brief.Visible(name) + " occurs as soon as a process that has it inserts the message.", false
	}
	if due, err := time.Parse(time.RFC3339, v.Get("due")); err == nil {
		return "Message scheduled. It is due at " + show.Exact(due) + ".", false
	}
	verb, ok := scheduledVerbs[v.Get("act")]
	if !ok {
		return "", false
	}
	n := func(name string) int64 { return countOf(v, name) }
	text = show.Plural(n("done")+n("attempted"), "message") + " " + verb[1] + "."
	if n("attempted") > 0 {
		text += " " + show.Thousands(n("attempted")) + " after a failed attempt: the broker may have stored the message."
	}
	if n("late") > 0 {
		text += " " + show.Thousands(n("late")) + " unchanged: due, may be leaving or have left."
	}
	return text, n("late") > 0
}

// scheduledForm is the confirmation form of an act on messages of the outbox.
type scheduledForm struct {
	Do, Verb       string
	Words          string
	N              int64
	More           bool // more messages match than an act can change
	Fields         []pair
	At, Reason     string
	Problem, Where string
	Back           template.URL
}

// askScheduled shows the form of an act. The selection comes from the URL or, if the user picked messages, from a form.
func (p *Pages) askScheduled(c *web.Call) error {
	v, err := selectionValues(c)
	if err != nil {
		return err
	}
	form, _, err := scheduledFormOf(c, v)
	if err != nil {
		return err
	}
	return showScheduledForm(c, http.StatusOK, form)
}

func showScheduledForm(c *web.Call, status int, form *scheduledForm) error {
	return render(c, status, "scheduled_act", page{Title: form.Verb, Nav: "scheduled"}, form)
}

// scheduledFormOf reads the selection of an act and counts the messages.
func scheduledFormOf(c *web.Call, v url.Values) (*scheduledForm, api.ScheduledAct, error) {
	do := v.Get("do")
	verb, ok := scheduledVerbs[do]
	if !ok {
		return nil, api.ScheduledAct{}, fault.BadRequest("do must be send, move or cancel: got "+brief.Quoted(do), "correct the form")
	}
	f, err := api.ParseScheduledFilter(web.Only(v, api.ScheduledNames), c.Clock())
	if err != nil {
		return nil, api.ScheduledAct{}, fault.BadFilter(err)
	}
	act := api.ScheduledAct{Filter: f, All: v.Get("all") == "true"}
	if err := act.Validate(); err != nil {
		return nil, act, err
	}
	n, through, err := c.CountScheduled(f)
	if err != nil {
		return nil, act, err
	}
	shown := min(int64(n), api.MaxScheduledAct)
	fields := f.Values()
	for name, value := range map[string]string{"do": do, "at_most": strconv.FormatInt(shown, 10), "through": strconv.FormatInt(through, 10)} {
		fields.Set(name, value)
	}
	if act.All {
		fields.Set("all", "true")
	}
	back := f
	if len(f.IDs) > 1 { // picked from the list
		back.IDs = nil
	}
	return &scheduledForm{
		Do: do, Verb: verb[0], Words: scheduledWords(f), N: shown, More: int64(n) > shown, Fields: pairs(fields), At: "2h", Back: web.Href("/scheduled", back.Values()),
	}, act, nil
}

// scheduledWords describes a filter.
func scheduledWords(f api.ScheduledFilter) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	switch len(f.IDs) {
	case 0:
	case 1:
		add("message %d", f.IDs[0])
	default:
		add("%d selected", len(f.IDs))
	}
	for _, x := range []struct {
		what string
		text api.Text
	}{{"to", f.RoutingKey}, {"exchange", f.Exchange}, {"order key", f.OrderKey}, {"message ID", f.MessageID}} {
		if x.text != "" {
			add("%s %s", x.what, brief.Visible(string(x.text)))
		}
	}
	if f.Failed {
		add("with a failed attempt")
	}
	if !f.From.IsZero() {
		add("due at %s or later", show.Exact(f.From))
	}
	if !f.Before.IsZero() {
		add("due before %s", show.Exact(f.Before))
	}
	if len(words) == 0 {
		return "All scheduled messages."
	}
	return "Scheduled messages: " + strings.Join(words, ", ") + "."
}

// actOnScheduled processes the submitted form.
func (p *Pages) actOnScheduled(c *web.Call) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	form, act, err := scheduledFormOf(c, v)
	if err != nil {
		return err
	}
	if act.AtMost, err = strconv.ParseInt(v.Get("at_most"), 10, 64); err != nil || act.AtMost < 1 {
		return errNoCount
	}
	if act.Through, err = strconv.ParseInt(v.Get("through"), 10, 64); err != nil || act.Through < 1 {
		return errNoCount
	}
	act.Reason, form.Reason = strings.TrimSpace(v.Get("reason")), v.Get("reason")
	if form.Do == "move" {
		form.At = v.Get("at")
		if act.At, act.In, err = moment(form.At); err != nil {
			form.Problem, form.Where = sentence(err.Error()), "at"
			return showScheduledForm(c, http.StatusUnprocessableEntity, form)
		}
	}
	if err := act.Validate(); err != nil {
		return err
	}
	if err := claimSubmission(c, v); err != nil {
		return err
	}
	done, err := c.ActOnScheduled(act, form.Do != "cancel")
	if err != nil {
		return err
	}
	q := url.Values{"act": {form.Do}}
	for name, n := range map[string]int64{"done": done.Done, "attempted": done.Attempted, "late": done.TooLate} {
		q.Set(name, strconv.FormatInt(n, 10))
	}
	return c.SeeOther("/scheduled", q)
}

// moment reads a time from now, or a time in UTC.
func moment(text string) (at time.Time, in api.Duration, err error) {
	if in.UnmarshalText([]byte(strings.TrimSpace(text))) != nil {
		at, err = params.ReadTime(text, time.Time{}, time.UTC)
	}
	if err != nil || in <= 0 && at.IsZero() {
		err = errors.New("enter a time from now, such as 30m or 2d, or a time such as 2026-03-01 09:00")
	}
	return at, in, err
}

// runScheduled makes a periodic message occur.
func (p *Pages) runScheduled(c *web.Call) error {
	v, err := c.Form()
	if err == nil {
		err = claimSubmission(c, v)
	}
	if err != nil {
		return err
	}
	name, err := c.RunCron(api.CronName{App: v.Get("app"), Name: v.Get("name")})
	if err != nil {
		return err
	}
	return c.SeeOther("/scheduled", url.Values{"ran": {name.Name}})
}

// oneScheduled shows a message of the outbox.
func (p *Pages) oneScheduled(c *web.Call, id int64) error {
	m, err := c.OneScheduled(id)
	if err != nil {
		return err
	}
	content := m.Content.Content()
	data := struct {
		scheduledRow
		Content peekedMessage
		Hidden  bool
	}{scheduledRow{m.Scheduled, destinationOf(m.Target), scheduledLinksOf(api.ScheduledFilter{IDs: []int64{id}})}, viewContent(content), len(c.Secrets()) > 0}
	return render(c, http.StatusOK, "scheduled_message", page{Title: fmt.Sprintf("Scheduled message %d", id), Nav: "scheduled"}, data)
}
