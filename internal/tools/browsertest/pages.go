package browsertest

import (
	"context"
	"fmt"
	"slices"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// Page is a page of the console, for checks and pictures.
type Page struct{ Name, Path string }

// IsError reports whether the page has an error status.
func (p Page) IsError() bool {
	return slices.Contains([]string{"missing", "search-wrong", "search-unknown", "groups-wrong", "history-wrong", "retrying-wrong", "scheduled-wrong"}, p.Name)
}

// Pages returns a page of each kind, for an archive that Seed has filled.
func Pages(ctx context.Context, a *store.Archive) ([]Page, error) {
	all := []Page{
		{"overview", "/"},
		{"groups", "/groups"},
		{"groups-empty", "/groups?text=nothing+like+this"},
		{"search", "/messages"},
		{"search-words", "/messages?text=customer&queue=orders&min_attempts=2&state=failed"},
		{"search-wrong", "/messages?queue=orders&text=customer&since=yesterday"},
		{"search-unknown", "/messages?error=declined&group=9999"},
		{"groups-wrong", "/groups?order=first"},
		{"replays", "/replays"},
		{"workers", "/workers"},
		{"worker-pause", "/workers/pause?queue=orders"},
		{"worker-key-retry", "/workers/key?queue=payments&key=customer-17&do=retry"},
		{"worker-key-park", "/workers/key?queue=payments&do=park"},
		{"worker-key-park-all", "/workers/key?queue=payments&key=customer-17&do=park-all"},
		{"worker-key-parked", "/workers?did=parked&n=5"},
		{"retrying", "/retrying"},
		{"retrying-retry", "/retrying/act?do=retry&queue=orders"},
		{"retrying-postpone", "/retrying/act?do=postpone&all=true"},
		{"retrying-none", "/retrying/act?do=park&queue=nothing"},
		{"retrying-wrong", "/retrying?attempt=many"},
		{"scheduled", "/scheduled"},
		{"scheduled-message", "/scheduled/1"},
		{"scheduled-move", "/scheduled/act?do=move&routing_key=orders"},
		{"scheduled-cancel", "/scheduled/act?do=cancel&all=true"},
		{"scheduled-none", "/scheduled?order_key=nothing"},
		{"scheduled-wrong", "/scheduled?before=many"},
		{"worker-resume", "/workers/resume?queue=orders"},
		{"history", "/history"},
		{"history-hour", "/history?queue=orders&range=1h"},
		{"history-day", "/history?queue=orders"},
		{"history-week", "/history?queue=thumbnails&range=7d"},
		{"history-none", "/history?queue=nothing"},
		{"history-wrong", "/history?range=1y"},
		{"topology", "/topology"},
		{"topology-purged", "/topology?did=purged&n=5000&of=12000"},
		{"publish", "/publish?queue=imports"},
		{"peek", "/queues/peek?queue=imports"},
		{"purge", "/queues/purge?queue=imports"},
		{"purge-none", "/queues/purge?queue=orders.failed"},
		{"audit", "/audit"},
		{"ledger", "/ledger"},
		{"retrying-long", "/retrying?error=0123456789abcdef"},
		{"missing", "/nowhere"},
	}
	groups, _, err := a.Groups(ctx, store.GroupFilter{MostFailed: true}, store.Page{Size: 50})
	if err != nil || len(groups) == 0 {
		return all, err
	}
	g := groups[0]
	for _, other := range groups {
		if other.Queue == "invoices" && other.Counts.Failed > 50 {
			g = other
		}
	}
	all = append(all,
		Page{"group", fmt.Sprintf("/groups/%d", g.ID)},
		Page{"merge", fmt.Sprintf("/groups/merge?id=%d&id=%d", g.ID, groups[0].ID)},
		Page{"replay-new", fmt.Sprintf("/replays/new?group=%d", g.ID)},
		Page{"discard", fmt.Sprintf("/discard?group=%d", g.ID)},
		Page{"restore", "/restore?all=true"},
		Page{"erase", fmt.Sprintf("/erase?group=%d", g.ID)},
		Page{"erase-none", fmt.Sprintf("/erase?group=%d&text=nothing+like+this", g.ID)},
	)
	for _, want := range []struct {
		name   string
		filter failed.Filter
	}{
		{"message", failed.Filter{Queue: "orders", Error: "connection refused", States: []failed.State{failed.Failed}}},
		{"message-edited", failed.Filter{Queue: "orders", Error: "decode order"}},
		{"message-xml", failed.Filter{Queue: "invoices"}},
		{"message-binary", failed.Filter{Queue: "thumbnails"}},
		{"message-discarded", failed.Filter{States: []failed.State{failed.Discarded}}},
		{"message-hostile", failed.Filter{Error: "<script>"}},
	} {
		found, _, err := a.List(ctx, want.filter, store.Page{Size: 1})
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			all = append(all, Page{want.name, fmt.Sprintf("/messages/%d", m.ID)})
			if want.name == "message-edited" || want.name == "message-hostile" {
				all = append(all, Page{want.name + "-edit", fmt.Sprintf("/messages/%d/edit", m.ID)})
			}
			if want.name == "message-edited" {
				all = append(all, Page{"revision", fmt.Sprintf("/messages/%d/revisions/1", m.ID)})
			}
		}
	}
	replays, _, err := a.Replays(ctx, store.Page{Size: 10})
	if err != nil {
		return nil, err
	}
	for _, r := range replays {
		all = append(all, Page{"replay-" + string(r.State), fmt.Sprintf("/replays/%d", r.ID)})
		if r.Refused > 0 {
			all = append(all, Page{"search-refused", fmt.Sprintf("/messages?refused_by=%d&state=all", r.ID)})
		}
	}
	return all, nil
}
