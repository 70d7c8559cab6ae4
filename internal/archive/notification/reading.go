package notification

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// Reading summarizes an archive and a ledger at a point in time. The database stores only the fields that detect
// compares with a later reading.
type Reading struct {
	Time    time.Time        `json:"time"`
	Newest  failed.GroupID   `json:"newest"` // highest group ID
	Groups  []Group          `json:"groups"` // the groups with the latest failures and the newest groups, sorted by ID
	Replays []Replay         `json:"replays"`
	Missing map[string]int64 `json:"missing"` // number of missing messages by account, negative for surplus messages; nil without a ledger
}

// Group is an error group in a Reading.
type Group struct {
	ID      failed.GroupID `json:"id"`
	Arrived int64          `json:"arrived"` // all messages of the group, in any state
	Failed  int64          `json:"failed"`  // messages in state failed
	Queue   string         `json:"-"`
	Text    string         `json:"-"`
	Muted   bool           `json:"-"`

	Regrouped time.Time `json:"regrouped,omitzero"` // moved messages are not new failures
}

// Replay is a replay in a Reading.
type Replay struct {
	ID       failed.ReplayID    `json:"id"`
	Ended    bool               `json:"ended"` // stopped, cancelled, or done and no longer verifying outcomes
	State    failed.ReplayState `json:"-"`
	Why      string             `json:"-"`
	Outcomes Outcomes           `json:"-"`
}

// replayOf converts a replay of the archive.
func replayOf(p failed.Replay) Replay {
	ended := p.State == failed.ReplayDone && !p.Verifying || p.State == failed.ReplayStopped || p.State == failed.ReplayCancelled
	return Replay{p.ID, ended, p.State, p.Why, Outcomes{
		Selected: p.Total, Sent: p.Sent, Succeeded: p.Succeeded, FailedAgain: p.Back, Settled: p.Settled, Retrying: p.Retrying, Unknown: p.Unknown, Refused: p.Refused,
	}}
}

// readGroups is the maximum number of groups with the latest failures, and of the newest groups, in a reading.
const readGroups = 500

// Read reads the archive a and the ledger l. l may be nil.
func Read(ctx context.Context, a *store.Archive, l *ledger.Ledger) (*Reading, error) {
	r := &Reading{Time: a.Config().Clock().UTC()}
	groups, err := a.RecentGroups(ctx, readGroups)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		r.Groups = append(r.Groups, Group{g.ID, g.Counts.Total(), g.Counts.Failed, string(g.Queue), g.Text, g.MutedAt(r.Time), g.Regrouped})
		r.Newest = max(r.Newest, g.ID)
	}
	replays, _, err := a.Replays(ctx, store.Page{})
	if err != nil {
		return nil, err
	}
	for _, p := range replays {
		r.Replays = append(r.Replays, replayOf(p))
	}
	if l == nil {
		return r, nil
	}
	report, err := l.Report(ctx)
	if err != nil {
		return nil, err
	}
	r.Missing = map[string]int64{}
	for _, account := range report.Accounts {
		if account.State == ledger.Differs {
			r.Missing[account.Name] = 0
			for _, d := range account.Differences {
				r.Missing[account.Name] += d.Messages
			}
		}
	}
	return r, nil
}

// window is the minimum time over which growth is counted.
const window = 5 * time.Minute

// detect returns the events between two readings. growth is the number of messages per window that triggers an event.
func detect(before, now *Reading, growth int64) (events []Event) {
	if before.Time.IsZero() {
		return nil
	}
	event := func(kind Kind, subject any, title, detail string, n int64) *Event {
		events = append(events, Event{Kind: kind, Time: now.Time, Subject: fmt.Sprint(subject), Title: line(title), Detail: line(detail), Messages: n})
		return &events[len(events)-1]
	}
	old := make(map[failed.GroupID]Group)
	var last failed.GroupID
	for _, g := range before.Groups {
		old[g.ID] = g
		last = max(last, g.ID)
	}
	elapsed := max(window, now.Time.Sub(before.Time))
	grows := func(n int64) bool { return float64(n)*float64(window) >= float64(growth)*float64(elapsed) }
	queues := map[string]int64{}
	var order []string
	for _, g := range now.Groups {
		was, known := old[g.ID]
		if g.Muted || !g.Regrouped.Equal(was.Regrouped) || !known && g.ID <= last { // the previous reading did not include this group
			continue
		}
		subject := fmt.Sprint("group/", g.ID)
		if g.ID > before.Newest {
			event(NewGroup, subject, "New error group in "+g.Queue, g.Text, g.Arrived)
		}
		if n := g.Arrived - was.Arrived; grows(n) {
			event(GroupGrows, subject, fmt.Sprintf("%s of a group in %s within %s", more(n, "failure"), g.Queue, elapsed.Round(time.Second)), g.Text, n)
		}
		if _, found := queues[g.Queue]; !found {
			order = append(order, g.Queue)
		}
		queues[g.Queue] += g.Failed - was.Failed
	}
	for _, q := range order {
		if n := queues[q]; grows(n) {
			event(QueueGrows, "queue/"+q, fmt.Sprintf("%s of %s within %s", more(n, "failed message"), q, elapsed.Round(time.Second)), "", n)
		}
	}
	detectReplays(before, now, event)
	for _, account := range slices.Sorted(maps.Keys(now.Missing)) {
		n := now.Missing[account]
		if _, found := before.Missing[account]; found {
			continue
		}
		title := fmt.Sprintf("Messages of %s are missing: %d", account, n)
		if n < 0 {
			title = fmt.Sprintf("Surplus messages of %s: %d", account, -n)
		}
		event(MessagesMissing, "account/"+account, title, "", max(n, -n))
	}
	return events
}

func more(n int64, noun string) string {
	if n == 1 {
		return "1 more " + noun
	}
	return fmt.Sprintf("%d more %ss", n, noun)
}

func detectReplays(before, now *Reading, event func(Kind, any, string, string, int64) *Event) {
	ended := map[failed.ReplayID]bool{}
	var last failed.ReplayID
	for _, p := range before.Replays {
		ended[p.ID] = p.Ended
		last = max(last, p.ID)
	}
	for _, p := range now.Replays {
		if was, known := ended[p.ID]; !p.Ended || was || !known && p.ID <= last {
			continue
		}
		kind, what := ReplayDone, "finished"
		switch p.State {
		case failed.ReplayStopped:
			kind, what = ReplayStopped, "stopped"
		case failed.ReplayCancelled:
			kind, what = ReplayStopped, "was cancelled"
		}
		o := p.Outcomes
		detail := fmt.Sprintf("%d of %d sent: %d succeeded, %d failed again, %d settled, %d are retried, %d unknown", o.Sent, o.Selected, o.Succeeded, o.FailedAgain, o.Settled, o.Retrying, o.Unknown)
		if o.Refused > 0 {
			detail += fmt.Sprintf("; %d refused", o.Refused)
		}
		if p.Why != "" {
			detail += "; " + p.Why
		}
		event(kind, fmt.Sprint("replay/", p.ID), fmt.Sprintf("Replay %d %s", p.ID, what), detail, 0).Outcomes = &o
	}
}
