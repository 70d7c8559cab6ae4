package pages

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
)

// historyRow is a queue in the list of histories.
type historyRow struct {
	Name       string
	Href       template.URL
	Sum        history.Totals
	P50, P95   string
	Rise       string // latest rise; "": none
	Bars       show.ChartView
	Unrecorded bool // true if no interval was recorded
}

// historyView contains the data of the history page, for one queue or for the list of queues.
type historyView struct {
	Known bool // whether the console records a history
	Queue string
	Tabs  []tab
	Here  template.URL // URL of this page
	Rows  []historyRow

	Sum           history.Totals
	P50, P95, P99 string
	Rises         []history.Rise
	Gaps          []string
	Charts        []show.HistoryChart
	Points        []historyPoint // newest first
	Marks         []history.Mark // newest first
	Mark          markForm
}

type markForm struct {
	Range    string // range of the page
	Text, At string
	Only     bool // only for the queue of the page
	Wrong    wrong
}

// historyPoint is an interval in the table.
type historyPoint struct {
	history.Point
	At            string
	P50, P95, P99 string
}

// history shows the history of one queue or of all queues.
func (p *Pages) history(c *web.Call) error {
	return showHistory(c, http.StatusOK, markForm{})
}

// markTime is the format of the time of a mark in a form.
const markTime = "2006-01-02T15:04"

// addMark adds the mark from the submitted form.
func (p *Pages) addMark(c *web.Call) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	c.Params = web.Only(v, api.HistoryNames) // parameters of the page
	form := markForm{Text: v.Get("text"), At: v.Get("at"), Only: v.Get("only") != ""}
	m := history.Mark{Text: strings.TrimSpace(form.Text)}
	if form.Only {
		m.Queue = params.Text(historyQueue(c))
	}
	if form.At != "" {
		if m.At, err = time.Parse(markTime, form.At); err != nil {
			form.Wrong = wrong{"at", "Enter a time such as " + c.Clock().UTC().Format(markTime) + "."}
			return showHistory(c, http.StatusUnprocessableEntity, form)
		}
	}
	_, err = c.AddMark(m)
	if f, ok := errors.AsType[*fault.Failure](err); ok && f.Status == http.StatusBadRequest {
		problem := strings.TrimPrefix(f.Text, "invalid mark: ")
		form.Wrong = wrong{"text", sentence(problem)}
		if strings.HasPrefix(problem, "time ") {
			form.Wrong.Name = "at"
		}
		return showHistory(c, http.StatusUnprocessableEntity, form)
	}
	if err != nil {
		return err
	}
	return c.SeeOther("/history", c.Params)
}

// historyQueue returns the queue of the page, or "" for the list of queues.
func historyQueue(c *web.Call) string {
	var queue api.Text
	if err := queue.UnmarshalText([]byte(c.Params.Get("queue"))); err != nil {
		return c.Params.Get("queue")
	}
	return string(queue)
}

func showHistory(c *web.Call, status int, mark markForm) error {
	data := historyView{Known: c.History != nil, Queue: historyQueue(c), Mark: mark}
	title := "History"
	if data.Queue != "" {
		title = "History of " + brief.Visible(data.Queue)
	}
	if data.Known {
		all, err := c.Histories(data.Queue)
		if err != nil {
			return err
		}
		for _, r := range history.Ranges() {
			data.Tabs = append(data.Tabs, tab{Text: rangeNames[r.Name], Href: historyHref(data.Queue, r), Current: r == all.Range})
		}
		data.Here, data.Mark.Range = historyHref(data.Queue, all.Range), all.Range.Name
		if data.Queue == "" {
			data.list(all)
		} else {
			data.one(all)
		}
	}
	return render(c, status, "history", page{Title: title, Nav: "history"}, data)
}

var rangeNames = map[string]string{"1h": "1 hour", "24h": "24 hours", "7d": "7 days"}

// historyHref returns the URL of the history of a queue, or of all queues if queue is "".
func historyHref(queue string, r history.Range) template.URL {
	q := url.Values{"range": {r.Name}}
	if queue != "" {
		q.Set("queue", api.Text(queue).Encode())
	}
	return web.Href("/history", q)
}

// maxListedMarks is the maximum number of marks on a page.
const maxListedMarks = 20

// list adds a row for each queue. The queue with the most failures comes first.
func (v *historyView) list(all web.Histories) {
	for _, s := range all.Queues {
		sum := s.Sum()
		row := historyRow{Name: s.Queue, Href: historyHref(s.Queue, all.Range), Sum: sum, P50: tookOf(sum, 0.5), P95: tookOf(sum, 0.95), Bars: historySpark(s, all.Range)}
		if rises := s.Rises(all.Marks); len(rises) > 0 {
			row.Rise = rises[0].String()
		}
		v.Rows = append(v.Rows, row)
	}
	slices.SortStableFunc(v.Rows, func(x, y historyRow) int {
		switch a, b := x.Sum.Failures(), y.Sum.Failures(); {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	v.Marks = all.Marks[:min(len(all.Marks), maxListedMarks)]
}

// historySpark returns a sparkline of the failures in the history of a queue.
func historySpark(s history.Series, r history.Range) show.ChartView {
	var buckets []store.Bucket
	for _, p := range s.Merged(48).Points {
		buckets = append(buckets, store.Bucket{Start: p.Start, N: int64(p.Failures())})
	}
	c := show.Spark(buckets)
	c.Title = show.Plural(int64(s.Sum().Failures()), "failure") + " in the last " + rangeNames[r.Name]
	return c
}

func tookOf(t history.Totals, q float64) string {
	if t.Took.Count() == 0 {
		return "–"
	}
	return show.Took(t.Took.Quantile(q))
}

// one fills in the history of a single queue.
func (v *historyView) one(all web.Histories) {
	s := all.Queues[0]
	marks := s.Marks(all.Marks)
	v.Sum = s.Sum()
	v.P50, v.P95, v.P99 = tookOf(v.Sum, 0.5), tookOf(v.Sum, 0.95), tookOf(v.Sum, 0.99)
	v.Rises = s.Rises(all.Marks)
	v.Charts = []show.HistoryChart{
		show.HistoryBars(s, marks, "failures", "Failures per minute", history.Totals.Failures),
		show.HistoryBars(s, marks, "succeeded", "Succeeded per minute", func(t history.Totals) uint64 { return t.Succeeded }),
		show.HistoryTimes(s, marks, "took", "Handling time"),
	}
	for i, p := range slices.Backward(s.Points) {
		v.Points = append(v.Points, historyPoint{p, s.Points[i].Start.UTC().Format("2006-01-02 15:04"), tookOf(p.Totals, 0.5), tookOf(p.Totals, 0.95), tookOf(p.Totals, 0.99)})
	}
	for _, gap := range s.Gaps() {
		if gap[1].Sub(gap[0]) >= all.Range.Step {
			v.Gaps = append(v.Gaps, gap[0].Format(time.DateTime)+" – "+gap[1].Format(time.DateTime))
		}
	}
	slices.Reverse(marks)
	v.Marks = marks[:min(len(marks), maxListedMarks)]
}

// addTrends adds the failures of the last 24 hours to rows. If there is no history, or if it cannot be read, addTrends
// returns false, and the overview has no trends.
func addTrends(c *web.Call, rows []queueRow) bool {
	if c.History == nil {
		return false
	}
	r := history.Range{Name: history.Day.Name, Length: history.Day.Length, Step: history.Week.Step}
	all, err := c.History.All(c.R.Context(), r)
	if err != nil {
		return false
	}
	byQueue := map[string]history.Series{}
	for _, s := range all {
		byQueue[s.Queue] = s
	}
	for i := range rows {
		rows[i].Trend, rows[i].PastHref = historySpark(byQueue[rows[i].Name], r), historyHref(rows[i].Name, history.Day)
	}
	return true
}
