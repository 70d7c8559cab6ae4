package console

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/failed"
)

// replayView is a replay on a page.
type replayView struct {
	*failed.Replay
	Words   string // what it replays
	How     string // how fast, where to
	Percent int64
	Rate    float64 // messages per second so far
	Left    string  // how long it will take, if that can be said
	Running bool
	Took    string
}

func viewReplay(r failed.Replay, now time.Time) replayView {
	words := r.Plan.Filter
	words.States = nil // it can only have been failed
	v := replayView{
		Replay: &r, Words: describeFilter(words), How: describePlan(r.Plan),
		Percent: percent(r.Sent, r.Total), Running: r.State == failed.ReplayRunning,
	}
	end := r.Ended
	if end.IsZero() {
		end = now
	}
	took := end.Sub(r.Begun)
	v.Took = exactly(took.Round(time.Second))
	if took > 0 {
		v.Rate = float64(r.Sent) / max(took.Seconds(), 1)
	}
	if v.Running && v.Rate > 0 && r.Left() > 0 {
		left := float64(r.Left()) / v.Rate
		if left < 30*24*3600 {
			v.Left = short(max(time.Duration(left*float64(time.Second)), time.Second))
		}
	}
	return v
}

// describePlan says in words how a replay goes about it.
func describePlan(p failed.Plan) string {
	to := "to the queue each failed in"
	if p.To != nil {
		to = fmt.Sprintf("to exchange %q with key %q", visible(p.To.Exchange), visible(p.To.RoutingKey))
	}
	parts := []string{to}
	switch {
	case p.Rate > 0 && p.Ramp:
		parts = append(parts, fmt.Sprintf("slowly at first, up to %s per second", decimal(p.Rate)))
	case p.Rate > 0:
		parts = append(parts, fmt.Sprintf("at most %s per second", decimal(p.Rate)))
	case p.Ramp:
		parts = append(parts, "slowly at first")
	}
	if p.Canary > 0 {
		parts = append(parts, "one first, to see for "+exactly(p.Canary)+" whether it comes back")
	}
	if p.IgnoreSame {
		parts = append(parts, "goes on although the same comes back")
	}
	return strings.Join(parts, "; ")
}

// replays lists them.
func (p *pages) replays(c *call) error {
	replays, next, err := c.cfg.Archive.Replays(c.r.Context(), failed.Page{After: failed.Cursor(c.params.Get("after"))})
	if err != nil {
		return err
	}
	data := struct {
		Replays []replayView
		Next    template.URL
	}{Next: nextPage("/replays", url.Values{}, next)}
	for _, r := range replays {
		data.Replays = append(data.Replays, viewReplay(r, c.cfg.Clock()))
	}
	return c.render(http.StatusOK, "replays", page{Title: "Replays", Nav: "replays"}, data)
}

// replay shows one, what it could not send, and what came back from it.
func (p *pages) replay(c *call) error {
	id, err := c.pathID()
	if err != nil {
		return err
	}
	ctx := c.r.Context()
	r, err := c.cfg.Archive.Replay(ctx, failed.ReplayID(id))
	if err != nil {
		return err
	}
	returned, _, err := c.cfg.Archive.List(ctx, failed.Filter{Replay: r.ID}, failed.Page{Size: 10})
	if err != nil {
		return err
	}
	data := struct {
		R        replayView
		Refused  []failed.Summary
		Waiting  failed.Total // of all that it could not send, not sent since either
		Returned []failed.Summary
		Carried  bool // there is a replayer to carry it out

		AllRefused, Again, AllReturned template.URL
	}{R: viewReplay(*r, c.cfg.Clock()), Returned: returned, Carried: c.cfg.Replayer != nil}
	data.AllReturned = hrefMessages("/messages", failed.Filter{Replay: r.ID})
	data.AllRefused = hrefMessages("/messages", failed.Filter{RefusedBy: r.ID})
	if r.Refused > 0 {
		f := failed.Filter{RefusedBy: r.ID}
		if data.Refused, _, err = c.cfg.Archive.List(ctx, f, failed.Page{Size: 10}); err != nil {
			return err
		}
		f.States = []failed.State{failed.Failed}
		data.Again = hrefMessages("/replays/new", f)
		if data.Waiting, err = c.cfg.Archive.Count(ctx, f); err != nil {
			return err
		}
	}
	return c.render(http.StatusOK, "replay", page{Title: fmt.Sprintf("Replay %d", r.ID), Nav: "replays", Flash: c.flash()}, data)
}

// replayForm asks how to replay what is selected.
func (p *pages) replayForm(c *call) error {
	s, err := c.asked(failed.Failed)
	if err != nil {
		return err
	}
	form := url.Values{"same": {"stop"}, "to": {"origin"}}
	if s.N > 20 {
		form.Set("ramp", "yes")
	}
	return c.showReplayForm(http.StatusOK, s, form, "")
}

func (c *call) showReplayForm(status int, s *selection, form url.Values, problem string) error {
	data := struct {
		*selection
		Form    url.Values
		Problem string
		Carried bool
		Where   *whereabouts
	}{s, form, problem, c.cfg.Replayer != nil, nil}
	if s.N > 0 {
		var err error
		if data.Where, err = c.whereabouts(s.Filter); err != nil {
			return err
		}
	}
	return c.render(status, "replay_new", page{Title: "Replay", Nav: "replays"}, data)
}

// beginReplay begins one, by the form or, from a message's page, without any.
func (p *pages) beginReplay(c *call) error {
	s, v, err := c.sent(failed.Failed)
	if err != nil {
		return err
	}
	plan, err := readPlan(v)
	if err != nil {
		f := asFailure(err)
		return c.showReplayForm(http.StatusUnprocessableEntity, s, v, sentence(f.text)+" "+sentence(f.advice))
	}
	plan.Filter = s.Filter
	r, err := c.begin(plan)
	if err != nil {
		problem, now, err := c.grown(s, v, failed.Failed, err)
		if problem != "" {
			return c.showReplayForm(http.StatusConflict, now, v, problem)
		}
		return err
	}
	return c.seeOther(fmt.Sprintf("/replays/%d", r.ID), nil)
}

// begin begins a replay and wakes whoever carries it out.
func (c *call) begin(plan failed.Plan) (*failed.Replay, error) {
	return c.carried(func() (*failed.Replay, error) {
		r, err := c.cfg.Archive.BeginReplay(c.r.Context(), plan, c.who.actor)
		if errors.Is(err, failed.ErrNotFound) { // what the filter names exists: actOn and selected check it
			return nil, &failure{
				status: http.StatusUnprocessableEntity, text: "no selected message is in state failed",
				advice: "nothing was changed: look at the list for what there is",
			}
		}
		return r, err
	})
}

// editAndReplay is begin for one message that is edited first, of which a revision was seen.
func (c *call) editAndReplay(id failed.ID, seen int, content failed.Content, plan failed.Plan) (*failed.Replay, error) {
	return c.carried(func() (*failed.Replay, error) {
		return c.cfg.Archive.EditAndReplay(c.r.Context(), id, seen, content, plan, c.who.actor)
	})
}

func (c *call) carried(begin func() (*failed.Replay, error)) (*failed.Replay, error) {
	if c.cfg.Replayer == nil {
		return nil, &failure{
			status: http.StatusServiceUnavailable, text: "this console is not connected to a broker, so that nothing can be replayed here",
			advice: "start it with a broker: reprise console --broker URL",
		}
	}
	r, err := begin()
	if err != nil {
		return nil, err
	}
	c.cfg.Replayer.Wake()
	return r, nil
}

// formParser reads fields of a form, and keeps the first thing that is wrong.
type formParser struct {
	v   url.Values
	err error
}

func (p *formParser) fault(name, got, instead string) {
	if p.err == nil {
		p.err = badRequest(fmt.Sprintf("%s cannot be %q", name, clip(got, 80)), "write "+instead)
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

// readPlan reads how to replay.
func readPlan(v url.Values) (failed.Plan, error) {
	p := formParser{v: v}
	plan := failed.Plan{
		Rate:       p.decimal("rate"),
		Ramp:       v.Get("ramp") != "",
		IgnoreSame: v.Has("options") && v.Get("same") == "",
	}
	if to := v.Get("to"); to != "" && to != "origin" && to != "other" {
		p.fault("to", to, "origin or other")
	}
	if v.Get("to") == "other" {
		plan.To = &failed.Target{Exchange: v.Get("exchange"), RoutingKey: v.Get("key")}
		if plan.To.Exchange == "" && plan.To.RoutingKey == "" {
			p.err = badRequest("there is no place to send to", "name an exchange, or a queue as the routing key of the default exchange")
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

// cancelReplay ends one: what was not sent waits again.
func (p *pages) cancelReplay(c *call) error {
	id, err := c.pathID()
	if err != nil {
		return err
	}
	err = c.cfg.Archive.EndReplay(c.r.Context(), failed.ReplayID(id), failed.ReplayCancelled, "by "+string(c.who.actor), c.who.actor)
	if err != nil {
		return err
	}
	return c.seeOther(fmt.Sprintf("/replays/%d", id), nil)
}
