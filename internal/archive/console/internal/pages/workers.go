package pages

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/protocol"
)

var (
	workerNames = []string{"queue", "worker"}
	pauseNames  = append([]string{"for", "reason"}, workerNames...)
)

// queueWorkers contains the workers of a queue, prepared for a page.
type queueWorkers struct {
	Name    string
	Pause   *protocol.Pause // pause of the queue; nil: none
	Workers []workerRow
	Keys    *queueKeys // nil: the workers do not keep the order of keys

	PauseHref, ResumeHref template.URL
}

// workerRow is a worker, prepared for a page.
type workerRow struct {
	api.Worker
	Note     string // reason why the worker is not consuming
	Paused   bool   // an operator paused only this worker
	Messages []messageRow
	More     int // number of messages in progress that Messages omits

	PauseHref, ResumeHref template.URL
}

// messageRow is a message that a worker is handling.
type messageRow struct {
	ID      string
	Attempt int
	For     string // duration of the attempt when the worker last sent its status

	Progress *api.Progress
	Ago      string // time since the report of the progress
}

// workers lists the workers of all processes, by queue.
func (p *Pages) workers(c *web.Call) error {
	all := c.Workers()
	data := struct {
		Queues  []*queueWorkers
		Workers int
		Problem string
		Known   bool // whether the console receives the statuses of workers
	}{Workers: len(all.Workers), Problem: sentence(all.Problem), Known: c.Fleet != nil}
	var list []fleet.Worker
	if c.Fleet != nil {
		list = c.Fleet.Workers()
	}
	for _, w := range all.Workers {
		var q *queueWorkers
		if n := len(data.Queues); n > 0 && data.Queues[n-1].Name == w.Queue {
			q = data.Queues[n-1]
		} else {
			query := url.Values{"queue": {w.Queue}}
			q = &queueWorkers{Name: w.Queue, PauseHref: web.Href("/workers/pause", query), ResumeHref: web.Href("/workers/resume", query), Keys: keysOf(c, list, w.Queue)}
			data.Queues = append(data.Queues, q)
		}
		q.add(w)
	}
	return render(c, http.StatusOK, "workers", page{Title: "Workers", Nav: "workers", Flash: readFlash(c)}, data)
}

// elapsedText formats d, the time since the start of an attempt.
func elapsedText(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return show.Short(d)
}

func (q *queueWorkers) add(w api.Worker) {
	query := url.Values{"queue": {w.Queue}, "worker": {w.ID}}
	row := workerRow{
		Worker: w, Note: w.Trouble, More: w.Running - len(w.Handling),
		PauseHref: web.Href("/workers/pause", query), ResumeHref: web.Href("/workers/resume", query),
	}
	for _, p := range w.Pauses {
		switch p.Of {
		case protocol.PauseOfQueue:
			if q.Pause == nil || q.Pause.At.IsZero() {
				q.Pause = &p
			}
		case protocol.PauseOfWorker:
			row.Note, row.Paused = p.String(), true
		default:
			row.Note = p.String()
		}
	}
	for _, h := range w.Handling {
		m := messageRow{ID: h.MessageID, Attempt: h.Attempt, For: elapsedText(time.Duration(h.For)), Progress: h.Progress}
		if h.Progress != nil {
			m.Ago = elapsedText(time.Duration(h.Progress.Ago))
		}
		row.Messages = append(row.Messages, m)
	}
	q.Workers = append(q.Workers, row)
}

// workerForm is the form in which a user confirms that workers will be paused or resumed.
type workerForm struct {
	Queue, Worker string
	Resume        bool
	Workers       int // number of workers of the queue
}

// askWorkers returns a handler that shows the form for pausing workers or, if resume is set, for resuming them.
func askWorkers(resume bool) func(*web.Call) error {
	return func(c *web.Call) error {
		form := workerForm{Queue: c.Params.Get("queue"), Worker: c.Params.Get("worker"), Resume: resume}
		for _, w := range c.Workers().Workers {
			if w.Queue == form.Queue {
				form.Workers++
			}
		}
		title := "Pause"
		if resume {
			title = "Resume"
		}
		return render(c, http.StatusOK, "worker_pause", page{Title: fmt.Sprintf("%s %s", title, brief.Visible(form.Queue)), Nav: "workers"}, form)
	}
}

// pauseWorkers pauses a queue or a worker.
func (p *Pages) pauseWorkers(c *web.Call) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	f := formParser{v: v}
	pause := api.Pause{Queue: v.Get("queue"), Worker: v.Get("worker"), Reason: v.Get("reason")}
	if text := v.Get("for"); text != "" {
		if pause.For.UnmarshalText([]byte(text)) != nil || pause.For <= 0 {
			f.fault("for", text, "a time such as 10m or 8h")
		}
	}
	if f.err != nil {
		return f.err
	}
	if err := c.PauseWorkers(pause); err != nil {
		return err
	}
	return c.SeeOther("/workers", nil)
}

// resumeWorkers resumes a queue or a worker.
func (p *Pages) resumeWorkers(c *web.Call) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	if err := c.ResumeWorkers(api.Resume{Queue: v.Get("queue"), Worker: v.Get("worker")}); err != nil {
		return err
	}
	return c.SeeOther("/workers", nil)
}
