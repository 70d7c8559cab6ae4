package pages

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
)

// replayView is a replay, prepared for a page.
type replayView struct {
	*failed.Replay
	Words   string         // description of the messages
	How     string         // description of the rate and the destination
	Group   failed.GroupID // 0: the plan does not select a group
	Percent int64
	Rate    float64 // current rate, or average rate of an ended replay, in messages per second
	Left    string  // remaining time; "" if unknown
	Running bool
	Took    string

	CanaryResult string // "": the replay has no canary, or the canary stopped it

	Outcomes []outcomeView
}

// outcomeView contains the number of sent messages with one outcome, and a link to these messages. The number is
// positive.
type outcomeView struct {
	Name string
	Help string
	Tone string // "good", "bad" or ""
	N    int64
	Href template.URL
}

// outcomesOf returns the outcomes of the sent messages. It omits outcomes without messages.
func outcomesOf(r *failed.Replay) (all []outcomeView) {
	for _, o := range []struct {
		outcome    failed.Outcome
		n          int64
		help, tone string
	}{
		{failed.OutcomeSucceeded, r.Succeeded, "reported by workers", "good"},
		{failed.OutcomeFailedAgain, r.Back, "in the archive again", "bad"},
		{failed.OutcomeSettled, r.Settled, "queues found empty", ""},
		{failed.OutcomeRetrying, r.Retrying, "attempt failed", ""},
		{failed.OutcomePending, r.Pending(), "no report yet", ""},
		{failed.OutcomeUnknown, r.Unknown, "no report received", ""},
	} {
		if o.n == 0 {
			continue
		}
		all = append(all, outcomeView{string(o.outcome), o.help, o.tone, o.n, web.HrefMessages("/messages", failed.Filter{SentBy: r.ID, Outcome: o.outcome})})
	}
	return all
}

// canaryView describes the canary that stopped a replay.
type canaryView struct {
	Message failed.ID
	What    string
	Error   string // "": unknown
}

// canaryThatStopped returns the canary that stopped a replay, or nil if the replay stopped for another reason. If the
// canary failed, Replay.Why contains its result, a colon and the error.
func canaryThatStopped(c *web.Call, r *failed.Replay) (*canaryView, error) {
	if r.State != failed.ReplayStopped || r.Plan.Canary == 0 || r.Sent != 1 {
		return nil, nil
	}
	sent, _, err := c.Archive.List(c.R.Context(), failed.Filter{SentBy: r.ID}, store.Page{Size: 1})
	if err != nil || len(sent) == 0 {
		return nil, err
	}
	what, text, _ := strings.Cut(r.Why, ": ")
	v := &canaryView{Message: sent[0].ID, Error: text}
	switch {
	case strings.HasSuffix(what, "failed its first attempt"):
		v.What = "failed its first attempt"
	case strings.HasSuffix(what, "failed again"):
		v.What = "failed again"
	default:
		v.Error = ""
		v.What = "is unproven, because it has no outcome after " + show.Exactly(r.Plan.Canary) +
			". A worker that consumes the queue and reports outcomes would prove it: check whether the workers run. " +
			"To send the rest without proof, start a replay without a canary"
	}
	return v, nil
}

func (p *Pages) viewReplay(r failed.Replay, now time.Time) replayView {
	words := r.Plan.Filter
	words.States = nil // a replay selects only failed messages
	v := replayView{
		Replay: &r, Words: DescribeFilter(words), How: describePlan(r.Plan), Group: words.Group,
		Percent: percent(r.Sent, r.Total), Running: r.State == failed.ReplayRunning,
	}
	end := r.Ended
	if end.IsZero() {
		end = now
	}
	took := end.Sub(r.Begun)
	v.Took = show.Exactly(took.Round(time.Second))
	v.Rate = float64(r.Sent) / max(took.Seconds(), 1)
	if v.Running {
		v.Rate = p.Live.rates.rate(now, &r)
	}
	if left := replay.Remaining(&r, v.Rate); v.Running && left > 0 && left < 30*24*time.Hour {
		v.Left = show.Short(max(left, time.Second))
	}
	v.Outcomes, v.CanaryResult = outcomesOf(&r), canaryResult(&r)
	return v
}

// canaryResult describes the progress of the canary. A replay sends a second message only if the canary has succeeded.
func canaryResult(r *failed.Replay) string {
	switch {
	case r.Plan.Canary <= 0:
		return ""
	case r.Sent == 1 && r.Succeeded == 1:
		return "succeeded"
	case r.Sent > 1:
		return "passed"
	case r.State == failed.ReplayRunning && r.Sent == 1:
		return "waiting for its outcome"
	}
	return ""
}

// describePlan describes the destination and the settings of a replay.
func describePlan(p failed.Plan) string {
	to := "to the original queue"
	if p.To != nil {
		to = fmt.Sprintf("to exchange %s with key %s", brief.Quoted(p.To.Exchange), brief.Quoted(p.To.RoutingKey))
	}
	parts := []string{to}
	switch {
	case p.Rate > 0 && p.Ramp:
		parts = append(parts, fmt.Sprintf("ramp up to %s per second", show.Decimal(p.Rate)))
	case p.Rate > 0:
		parts = append(parts, fmt.Sprintf("at most %s per second", show.Decimal(p.Rate)))
	case p.Ramp:
		parts = append(parts, "ramp up")
	}
	if p.Canary > 0 {
		parts = append(parts, "canary, up to "+show.Exactly(p.Canary))
	}
	if p.Edit != nil {
		parts = append(parts, "edited: "+p.Edit.String())
	}
	if p.IgnoreSame {
		parts = append(parts, "continue on same error")
	}
	return strings.Join(parts, "; ")
}

// replays lists the replays.
func (p *Pages) replays(c *web.Call) error {
	replays, next, err := c.Archive.Replays(c.R.Context(), store.Page{After: c.Params.Get("after")})
	if err != nil {
		return err
	}
	data := struct {
		Replays []replayView
		Next    template.URL
	}{Next: nextPage("/replays", url.Values{}, next)}
	for _, r := range replays {
		data.Replays = append(data.Replays, p.viewReplay(r, c.Clock()))
	}
	return render(c, http.StatusOK, "replays", page{Title: "Replays", Nav: "replays"}, data)
}

// replay shows a replay, the messages that it could not send, and the messages that failed again.
func (p *Pages) replay(c *web.Call, id failed.ReplayID) error {
	ctx := c.R.Context()
	r, err := c.Archive.Replay(ctx, id)
	if err != nil {
		return err
	}
	returned, _, err := c.Archive.List(ctx, failed.Filter{Replay: r.ID}, store.Page{Size: 10})
	if err != nil {
		return err
	}
	data := struct {
		R        replayView
		Refused  []failed.Summary
		Waiting  store.Total // messages that the replay could not send and that were not sent later
		Returned []failed.Summary
		Carried  bool        // a replayer is available
		Canary   *canaryView // canary that stopped the replay; nil: none
		Rest     store.Total // failed messages that match the plan of a stopped or canceled replay

		AllRefused, Again, AllReturned, ReplayRest template.URL
	}{R: p.viewReplay(*r, c.Clock()), Returned: returned, Carried: c.Replayer != nil}
	if data.Canary, err = canaryThatStopped(c, r); err != nil {
		return err
	}
	data.AllReturned = web.HrefMessages("/messages", failed.Filter{Replay: r.ID})
	data.AllRefused = web.HrefMessages("/messages", failed.Filter{RefusedBy: r.ID})
	if r.Refused > 0 {
		f := failed.Filter{RefusedBy: r.ID}
		if data.Refused, _, err = c.Archive.List(ctx, f, store.Page{Size: 10}); err != nil {
			return err
		}
		f.States = []failed.State{failed.Failed}
		data.Again = web.HrefMessages("/replays/new", f)
		if data.Waiting, err = c.Archive.Count(ctx, f); err != nil {
			return err
		}
	}
	if !data.R.Running && r.State != failed.ReplayDone {
		f := r.Plan.Filter
		f.All, f.States = false, []failed.State{failed.Failed}
		data.ReplayRest = web.HrefMessages("/replays/new", f)
		if r.Plan.Filter.All {
			data.ReplayRest = web.Href("/replays/new", url.Values{"all": {"true"}})
		}
		if data.Rest, err = c.Archive.Count(ctx, f); err != nil {
			return err
		}
	}
	return render(c, http.StatusOK, "replay", page{Title: fmt.Sprintf("Replay %d", r.ID), Nav: "replays", Flash: readFlash(c)}, data)
}

// replayForm shows the form for the settings of a new replay.
func (p *Pages) replayForm(c *web.Call) error {
	var where *sampleDestinations
	s, err := pageSelection(c, failed.Failed, func(c *web.Call, f failed.Filter) (t store.Total, err error) {
		where, err = findWhereabouts(c, f)
		if err != nil {
			return t, err
		}
		return where.Selected, nil
	})
	if err != nil {
		return err
	}
	form := url.Values{"same": {"stop"}, "to": {"origin"}}
	if s.N > 20 || s.More {
		form.Set("ramp", "yes")
	}
	if s.N > 1 || s.More {
		form.Set("canary", "1m")
	}
	return showReplayForm(c, http.StatusOK, s, replayForm{Form: form, Where: where})
}

// replayForm contains the values of the form for a new replay, and the problems with these values.
type replayForm struct {
	Form    url.Values
	Problem string
	Wrong   wrong
	Edit    *editPreview        // nil if the form has no valid edit
	Where   *sampleDestinations // nil: showReplayForm reads it
}

func showReplayForm(c *web.Call, status int, s *selection, form replayForm) error {
	data := struct {
		*selection
		replayForm
		Carried bool
	}{s, form, c.Replayer != nil}
	if form.Where == nil && (s.N > 0 || s.More) {
		var err error
		if data.Where, err = findWhereabouts(c, s.Filter); err != nil {
			return err
		}
	}
	return render(c, status, "replay_new", page{Title: "Replay", Nav: "replays"}, data)
}

// beginReplay begins a replay from the form, or from the page of a message, which does not offer settings.
func (p *Pages) beginReplay(c *web.Call) error {
	s, v, isCounted, err := formSelection(c, failed.Failed)
	if err != nil {
		return err
	}
	plan, err := readPlan(v)
	if err != nil {
		f := fault.AsFailure(err)
		return showReplayForm(c, http.StatusUnprocessableEntity, s, replayForm{Form: v, Problem: sentence(f.Text) + " " + sentence(f.Advice)})
	}
	plan.Filter = s.Filter
	edit, wrong := readBulkEdit(v)
	if wrong.Text != "" {
		return showReplayForm(c, http.StatusUnprocessableEntity, s, replayForm{Form: v, Wrong: wrong})
	}
	plan.Edit = edit
	if shown := digestOf(edit); edit != nil && v.Get("previewed") != shown {
		return showEditPreview(c, http.StatusOK, s, v, plan, "")
	}
	if isCounted {
		return showReplayForm(c, http.StatusOK, s, replayForm{Form: v})
	}
	if err := claimSubmission(c, v); err != nil {
		return err
	}
	r, err := c.Begin(plan)
	if err != nil {
		problem, now, err := handleMoreMessages(c, s, v, failed.Failed, err)
		switch {
		case problem != "" && edit != nil:
			plan.Filter = now.Filter
			return showEditPreview(c, http.StatusConflict, now, v, plan, problem)
		case problem != "":
			return showReplayForm(c, http.StatusConflict, now, replayForm{Form: v, Problem: problem})
		}
		return err
	}
	return c.SeeOther(fmt.Sprintf("/replays/%d", r.ID), nil)
}

// formParser parses the fields of a form, and keeps the first error.
type formParser struct {
	v   url.Values
	err error
}

func (p *formParser) fault(name, got, instead string) {
	if p.err == nil {
		p.err = fault.BadRequest(fmt.Sprintf("%s must be %s: got %s", name, instead, brief.Quoted(got)), "correct the form")
	}
}

func (p *formParser) decimal(name string) float64 {
	s := strings.TrimSpace(p.v.Get(name))
	if s == "" {
		return 0
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || n < 0 || n > 1e9 {
		p.fault(name, s, "a number, such as 5 or 0.5")
		return 0
	}
	return n
}

// readPlan reads the settings of a replay from a form.
func readPlan(v url.Values) (failed.Plan, error) {
	p := formParser{v: v}
	plan := failed.Plan{
		Rate:       p.decimal("rate"),
		Ramp:       v.Get("ramp") != "",
		IgnoreSame: v.Has("options") && v.Get("same") == "",

		ByQueueName: v.Get("by_queue_name") != "",
	}
	if to := v.Get("to"); to != "" && to != "origin" && to != "other" {
		p.fault("to", to, "origin or other")
	}
	if v.Get("to") == "other" {
		plan.To = &failed.Target{Exchange: v.Get("exchange"), RoutingKey: v.Get("key")}
		if plan.To.Exchange == "" && plan.To.RoutingKey == "" {
			p.err = fault.BadRequest("exchange and routing key must not both be empty", "enter an exchange, or a queue as the routing key of the default exchange")
		}
	}
	if s := v.Get("canary"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 || d > 24*time.Hour {
			p.fault("canary", s, "a time such as 30s or 5m, at most 24h")
		}
		plan.Canary = d
	}
	return plan, p.err
}

// cancelReplay cancels a replay. Unsent messages return to the state failed.
func (p *Pages) cancelReplay(c *web.Call, id failed.ReplayID) error {
	err := c.Archive.EndReplay(c.R.Context(), id, failed.ReplayCancelled, "by "+string(c.Who.Actor), c.Who.Actor)
	if err != nil {
		return err
	}
	return c.SeeOther(fmt.Sprintf("/replays/%d", id), nil)
}

// sampleDestinations contains the destinations of messages that a replay returns to their work queues.
type sampleDestinations struct {
	All     []replay.Destination // most messages first, up to maxDestinations
	More    int                  // number of omitted destinations
	Warned  bool                 // at least one of All has a Warning and is sent
	Refused bool                 // at least one of All is sent only if the user permits the queue name
	Unknown int64                // messages that cannot be sent, because their work queue is unknown
	Looked  int64                // number of inspected messages; 0: all
	Lost    []store.EditReason   // why messages would not be sent

	Selected store.Total
}

// maxDestinations is the maximum number of destinations on a page.
const maxDestinations = 20

// maxRefusals is the maximum number of messages whose content a page examines.
const maxRefusals = 500

func findWhereabouts(c *web.Call, f failed.Filter) (*sampleDestinations, error) {
	all, total, err := replay.Preview(c.R.Context(), c.Archive, failed.Plan{Filter: f}, c.Routing)
	if err != nil {
		return nil, err
	}
	w := &sampleDestinations{All: all[:min(len(all), maxDestinations)], Selected: total}
	if w.Lost, _, err = replay.Refusals(c.R.Context(), c.Archive, failed.Plan{Filter: f}, maxRefusals); err != nil {
		return nil, err
	}
	w.More = len(all) - len(w.All)
	w.Warned = slices.ContainsFunc(w.All, func(d replay.Destination) bool { return d.Warning != "" && !d.Refused })
	w.Refused = slices.ContainsFunc(w.All, func(d replay.Destination) bool { return d.Refused })
	for _, d := range all {
		if d.Unknown {
			w.Unknown += d.Messages
		}
		w.Looked += d.Messages
	}
	if !total.More && w.Looked >= total.N {
		w.Looked = 0
	}
	return w, nil
}
