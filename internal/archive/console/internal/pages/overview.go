package pages

import (
	"net/http"

	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// overview shows all work queues, the most frequent failures, and the running replays.
func (p *Pages) overview(c *web.Call) error {
	ctx := c.R.Context()
	s, err := p.system(c)
	if err != nil {
		return err
	}
	groups, _, err := c.Archive.Groups(ctx, store.GroupFilter{State: failed.Failed, MostFailed: true}, store.Page{Size: 6})
	if err != nil {
		return err
	}
	running, err := c.Archive.Running(ctx)
	if err != nil {
		return err
	}
	data := struct {
		Queues  []queueRow
		Sums    overviewSums
		Groups  []groupRow
		Running []replayView
		Live    bool   // whether figures are available
		Past    bool   // rows have a trend
		Breaker bool   // a worker has a circuit breaker
		Problem string // reason why expected figures are missing

		Stopped, Doubtful []web.DoubtfulQueue // queues that are not archived
	}{Queues: s.rows(p.Workers(), c.Workers().Workers), Groups: groupRows(groups), Live: s.problem == nil, Problem: s.noFigures()}
	for _, q := range c.Doubtful() {
		if q.Stopped {
			data.Stopped = append(data.Stopped, q)
		} else {
			data.Doubtful = append(data.Doubtful, q)
		}
	}
	data.Past = addTrends(c, data.Queues)
	for _, q := range data.Queues {
		data.Sums.add(q)
		data.Breaker = data.Breaker || q.Breaker != ""
	}
	for _, rate := range s.done {
		data.Sums.DoneKnown = true
		data.Sums.Done += rate.Done
		for _, queue := range rate.Work {
			data.Sums.In += s.figures[queue].Stats.PublishRate.Value
		}
	}
	for _, r := range running {
		data.Running = append(data.Running, p.viewReplay(r, c.Clock()))
	}
	return render(c, http.StatusOK, "overview", page{Title: "Overview", Nav: "overview"}, data)
}

// overviewSums contains totals over all queues.
type overviewSums struct {
	Counts                store.Counts
	Depth, Retrying       int64
	In, Done              float64 // per second; In counts only queues with a known Done
	DoneKnown             bool
	Workers               int
	Stopped, BreakersOpen int
	Queues, Failing       int
}

func (s *overviewSums) add(q queueRow) {
	n := q.Archived.Counts
	s.Counts.Failed += n.Failed
	s.Counts.Replaying += n.Replaying
	s.Counts.Replayed += n.Replayed
	s.Counts.Discarded += n.Discarded
	s.Depth += q.Live.Depth().Value
	s.Retrying += q.Retrying
	s.Workers += q.Workers
	s.Queues++
	if n.Failed > 0 {
		s.Failing++
	}
	if q.Stopped != "" {
		s.Stopped++
	}
	if q.Breaker != "" && q.Breaker != "closed" {
		s.BreakersOpen++
	}
}
