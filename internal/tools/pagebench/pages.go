package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
)

// page is a kind of request.
type page struct {
	name string
	ask  func(r *rand.Rand) request
}

type request struct{ method, path, body string }

// pagesOf returns a request for each page and endpoint, and for each kind of filter. It omits exports, requests that change
// data, and requests that do not read the archive.
func pagesOf(ctx context.Context, a *store.Archive) ([]page, error) {
	groups, _, err := a.Groups(ctx, store.GroupFilter{MostFailed: true}, store.Page{Size: 500})
	if err != nil {
		return nil, err
	}
	total, err := a.Count(ctx, failed.Filter{})
	if err != nil {
		return nil, err
	}
	biggest, n := groups[0].ID, total.N
	id := func(r *rand.Rand) int64 { return 1 + r.Int64N(n) }
	group := func(r *rand.Rand) failed.GroupID { return groups[r.IntN(len(groups))].ID }
	queue := func(r *rand.Rand) string { return fmt.Sprint("queue-", r.IntN(queues)) }
	now := time.Now()

	var pages []page
	get := func(name string, path func(r *rand.Rand) string) {
		pages = append(pages, page{name, func(r *rand.Rand) request { return request{http.MethodGet, path(r), ""} }})
	}
	fixed := func(path string) { get(path, func(*rand.Rand) string { return path }) }
	for _, path := range []string{
		"/", "/groups", "/groups?order=last", "/groups?state=all&order=last", "/groups?state=replayed", "/groups?text=deadlock", "/groups?text=nobody",
		"/messages", "/replays", "/audit", "/topology", "/ledger",
		"/api/v1/queues", "/api/v1/replays", "/api/v1/replays/1", "/api/v1/acts",
		"/api/v1/groups", "/api/v1/groups?order=failed", "/api/v1/groups?state=failed", "/api/v1/groups?text=deadlock", "/api/v1/groups?size=1000",
	} {
		fixed(path)
	}
	for _, r := range history.Ranges() {
		fixed("/history?range=" + r.Name)
		fixed("/api/v1/history?range=" + r.Name)
		for _, path := range []string{"/history", "/api/v1/history"} {
			get(path+"?queue=&range="+r.Name, func(x *rand.Rand) string {
				return fmt.Sprintf("%s?queue=queue-%d&range=%s", path, x.IntN(pastQueues), r.Name)
			})
		}
	}
	for i := range 4 {
		fixed(fmt.Sprint("/replays/", i+1))
	}
	get("/groups?queue=", func(r *rand.Rand) string { return "/groups?queue=" + queue(r) })
	get("/groups/{id}", func(r *rand.Rand) string { return fmt.Sprint("/groups/", group(r)) })
	get("/groups/{biggest}", func(*rand.Rand) string { return fmt.Sprint("/groups/", biggest) })
	get("/groups/{id}?state=all", func(r *rand.Rand) string { return fmt.Sprintf("/groups/%d?state=all", group(r)) })
	get("/api/v1/groups/{id}", func(r *rand.Rand) string { return fmt.Sprint("/api/v1/groups/", group(r)) })
	for _, path := range []string{"/messages/%d", "/messages/%d/body", "/messages/%d/edit", "/api/v1/messages/%d", "/api/v1/messages/%d/body", "/api/v1/messages/%d/diff", "/api/v1/messages/%d/revisions"} {
		get(strings.Replace(path, "%d", "{id}", 1), func(r *rand.Rand) string { return fmt.Sprintf(path, id(r)) })
	}

	lists := []struct {
		name   string
		filter func(r *rand.Rand) failed.Filter
	}{
		{"failed", func(*rand.Rand) failed.Filter { return failed.Filter{States: []failed.State{failed.Failed}} }},
		{"discarded", func(*rand.Rand) failed.Filter { return failed.Filter{States: []failed.State{failed.Discarded}} }},
		{"queue", func(r *rand.Rand) failed.Filter { return failed.Filter{Queue: params.Text(queue(r))} }},
		{"group", func(r *rand.Rand) failed.Filter { return failed.Filter{Group: group(r)} }},
		{"biggest group", func(*rand.Rand) failed.Filter { return failed.Filter{Group: biggest} }},
		{"hour of queue", func(r *rand.Rand) failed.Filter {
			d := now.Add(-time.Duration(r.IntN(29)+1) * 24 * time.Hour)
			return failed.Filter{Queue: params.Text(queue(r)), Since: d, Until: d.Add(time.Hour)}
		}},
		{"week", func(*rand.Rand) failed.Filter { return failed.Filter{Since: now.Add(-7 * 24 * time.Hour)} }},
		{"attempts in queue", func(r *rand.Rand) failed.Filter { return failed.Filter{MinAttempts: 9, Queue: params.Text(queue(r))} }},
		{"attempts, none", func(*rand.Rand) failed.Filter { return failed.Filter{MinAttempts: 1000} }},
		{"word of all", func(*rand.Rand) failed.Filter { return failed.Filter{Text: "order"} }},
		{"two words", func(*rand.Rand) failed.Filter { return failed.Filter{Text: "timeout customer"} }},
		{"two words, apart", func(*rand.Rand) failed.Filter { return failed.Filter{Text: "deadlock timeout"} }},
		{"word of 1 in 100", func(*rand.Rand) failed.Filter { return failed.Filter{Text: "hundredth"} }},
		{"word of 1 in 100, queue", func(r *rand.Rand) failed.Filter {
			return failed.Filter{Text: "hundredth", Queue: params.Text(queue(r))}
		}},
		{"word of 1 in 5,000", func(r *rand.Rand) failed.Filter { return failed.Filter{Text: fmt.Sprint("SKU-", r.IntN(5000))} }},
		{"word of one", func(r *rand.Rand) failed.Filter { return failed.Filter{Text: fmt.Sprint("order ", r.Int64N(n))} }},
		{"word of none", func(r *rand.Rand) failed.Filter { return failed.Filter{Text: fmt.Sprint("nobody", r.Int64N(n))} }},
		{"word, discarded", func(*rand.Rand) failed.Filter {
			return failed.Filter{Text: "customer", States: []failed.State{failed.Discarded}}
		}},
		{"word, replayed", func(*rand.Rand) failed.Filter {
			return failed.Filter{Text: "customer", States: []failed.State{failed.Replayed}}
		}},
		{"word, old", func(*rand.Rand) failed.Filter {
			return failed.Filter{Text: "customer", Until: now.Add(-20 * 24 * time.Hour)}
		}},
		{"word, attempts, none", func(*rand.Rand) failed.Filter { return failed.Filter{Text: "customer", MinAttempts: 1000} }},
		{"header", func(r *rand.Rand) failed.Filter {
			return failed.Filter{Headers: map[string]string{"tenant": fmt.Sprint("tenant-", r.IntN(1000))}}
		}},
		{"error, address", func(r *rand.Rand) failed.Filter {
			return failed.Filter{Error: fmt.Sprint("10.0.", r.IntN(200), ".7:5432: i/o")}
		}},
		{"error, words", func(*rand.Rand) failed.Filter { return failed.Filter{Error: "has no address in step"} }},
		{"error, part of a word", func(*rand.Rand) failed.Filter { return failed.Filter{Error: "eadloc"} }},
		{"error, none", func(*rand.Rand) failed.Filter { return failed.Filter{Error: "eadlok"} }},
		{"error, words apart", func(*rand.Rand) failed.Filter { return failed.Filter{Error: "(deadlock timeout)"} }},
		{"refused", func(*rand.Rand) failed.Filter { return failed.Filter{Refused: true} }},
		{"refused by", func(*rand.Rand) failed.Filter { return failed.Filter{RefusedBy: 1} }},
		{"sent by", func(*rand.Rand) failed.Filter { return failed.Filter{SentBy: 2} }},
		{"outcome", func(*rand.Rand) failed.Filter { return failed.Filter{SentBy: 2, Outcome: failed.OutcomePending} }},
		{"back", func(*rand.Rand) failed.Filter { return failed.Filter{Replay: 2} }},
	}
	for _, l := range lists {
		address := func(before, after string) func(r *rand.Rand) string {
			return func(r *rand.Rand) string { return before + "?" + l.filter(r).Values().Encode() + after }
		}
		get("/messages: "+l.name, address("/messages", ""))
		get("/api/v1/messages: "+l.name, address("/api/v1/messages", ""))
		get("/api/v1/messages/count: "+l.name, address("/api/v1/messages/count", ""))
		if l.name == "failed" || l.name == "discarded" {
			continue // actions ignore the state, and require another condition
		}
		act := func(r *rand.Rand) failed.Filter {
			f := l.filter(r)
			f.States = nil
			return f
		}
		get("/discard: "+l.name, func(r *rand.Rand) string { return "/discard?" + actValues(act(r)) })
		get("/replays/new: "+l.name, func(r *rand.Rand) string { return "/replays/new?" + actValues(act(r)) })
		for _, path := range []string{"/api/v1/discard", "/api/v1/replays"} {
			pages = append(pages, page{path + " dry run: " + l.name, func(r *rand.Rand) request {
				b, _ := json.Marshal(map[string]any{"filter": act(r)})
				return request{http.MethodPost, path + "?dry_run=true", string(b)}
			}})
		}
	}
	get("/restore: word of 1 in 100", func(*rand.Rand) string { return "/restore?" + actValues(failed.Filter{Text: "hundredth"}) })
	return pages, nil
}

func actValues(f failed.Filter) string {
	v := f.Values()
	v.Del("state")
	return v.Encode()
}

// figures are percentiles in milliseconds, by page and column.
type figures struct {
	Pages    []string
	Columns  []string
	P50, P95 map[string]map[string]float64
}

// set adds the figures of a page, from sorted times.
func (f *figures) set(page, column string, took []time.Duration) {
	if f.P95 == nil {
		f.P50, f.P95 = map[string]map[string]float64{}, map[string]map[string]float64{}
	}
	if f.P95[page] == nil {
		f.P50[page], f.P95[page] = map[string]float64{}, map[string]float64{}
		f.Pages = append(f.Pages, page)
	}
	if !slices.Contains(f.Columns, column) {
		f.Columns = append(f.Columns, column)
	}
	percentile := func(n int) float64 { return float64(took[(len(took)*n+99)/100-1].Microseconds()) / 1000 }
	f.P50[page][column], f.P95[page][column] = percentile(50), percentile(95)
}

// print writes a table of "p50; p95", with the earlier figures in parentheses.
func (f *figures) print(out io.Writer, before figures) {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprint(w, "| p50; p95, ms\t|")
	var line strings.Builder
	line.WriteString("|---\t|")
	for _, c := range f.Columns {
		fmt.Fprint(w, " ", c, "\t|")
		line.WriteString("---:\t|")
	}
	fmt.Fprint(w, "\n", line.String(), "\n")
	for _, p := range f.Pages {
		fmt.Fprintf(w, "| `%s`\t|", p)
		for _, c := range f.Columns {
			fmt.Fprintf(w, " %.1f; %.1f", f.P50[p][c], f.P95[p][c])
			if was, ok := before.P95[p][c]; ok {
				fmt.Fprintf(w, " (%.1f; %.1f)", before.P50[p][c], was)
			}
			fmt.Fprint(w, "\t|")
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
}

// ask measures the pages that o.only selects. For a list of messages in the API, it also requests the second page.
func (s *system) ask(ctx context.Context, o options, column string, pages []page, results *figures) error {
	for _, p := range pages {
		if !o.only.MatchString(p.name) {
			continue
		}
		r := rand.New(rand.NewPCG(3, 4))
		var took []time.Duration
		for range o.requests {
			q := p.ask(r)
			answer, d, err := s.get(ctx, q)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			took = append(took, d)
			var list struct{ Next string }
			if strings.HasPrefix(q.path, "/api/v1/messages?") && json.Unmarshal(answer, &list) == nil && list.Next != "" {
				q.path += "&after=" + url.QueryEscape(list.Next)
				if _, d, err = s.get(ctx, q); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				took = append(took, d)
			}
			if total := sum(took); total > 20*time.Second && len(took) > 10 {
				break // a few requests are enough for a slow page
			}
		}
		slices.Sort(took)
		results.set(p.name, column, took)
	}
	return ctx.Err()
}

func sum(all []time.Duration) (total time.Duration) {
	for _, d := range all {
		total += d
	}
	return total
}

func (s *system) get(ctx context.Context, q request) ([]byte, time.Duration, error) {
	r := httptest.NewRequestWithContext(ctx, q.method, q.path, strings.NewReader(q.body))
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "localhost:15600"
	if q.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	begun := time.Now()
	s.console.ServeHTTP(w, r)
	took := time.Since(begun)
	replaying := w.Code == http.StatusConflict && strings.HasSuffix(q.path, "/edit") // the page reports a running replay
	if w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable && !replaying {
		return nil, 0, fmt.Errorf("%s %s: status %d: %s", q.method, q.path, w.Code, w.Body)
	}
	return w.Body.Bytes(), took, nil
}
