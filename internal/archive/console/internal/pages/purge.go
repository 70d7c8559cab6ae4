package pages

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/brief"
)

// queueIn reads the name of a queue from a URL or a form.
func queueIn(v url.Values) (string, error) {
	var queue api.Text
	if err := queue.UnmarshalText([]byte(v.Get("queue"))); err != nil {
		return "", fault.BadRequest("queue: "+err.Error(), "correct the name of the queue")
	}
	return string(queue), nil
}

// queueForm reads a form with the name of a queue.
func queueForm(c *web.Call) (v url.Values, queue string, err error) {
	if v, err = c.Form(); err == nil {
		queue, err = queueIn(v)
	}
	return v, queue, err
}

// purgeForm is the form that confirms the purge of a queue.
type purgeForm struct {
	Queue   string
	N       int64 // ready messages
	Form    url.Values
	Wrong   wrong
	Problem string
}

// askPurge shows the confirmation form, with the number of messages.
func (p *Pages) askPurge(c *web.Call) error {
	queue, err := queueIn(c.Params)
	if err != nil {
		return err
	}
	n, err := c.QueueDepth(queue)
	if err != nil {
		return err
	}
	return showPurge(c, http.StatusOK, purgeForm{Queue: queue, N: int64(n)})
}

func showPurge(c *web.Call, status int, form purgeForm) error {
	return render(c, status, "purge", page{Title: "Purge " + brief.Visible(form.Queue), Nav: "topology"}, form)
}

// purgeTime limits the time during which a request begins further batches.
const purgeTime = 10 * time.Second

// purge removes the oldest messages of a queue, at most as many as the page showed.
func (p *Pages) purge(c *web.Call) error {
	v, queue, err := queueForm(c)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(v.Get("at_most"))
	if err != nil || n < 1 {
		return errNoCount
	}
	form := purgeForm{Queue: queue, N: int64(n), Form: v}
	what := api.PurgeQueue{Queue: api.Text(queue), Reason: strings.TrimSpace(v.Get("reason")), Drop: v.Get("drop") != ""}
	switch name := v.Get("name"); {
	case what.Reason == "":
		form.Wrong = wrong{"reason", "Enter a reason."}
	case name != queue && name != brief.Visible(queue):
		form.Wrong = wrong{"name", "Enter the name of the queue."}
	}
	if form.Wrong.Text != "" {
		return showPurge(c, http.StatusUnprocessableEntity, form)
	}
	if err := claimSubmission(c, v); err != nil {
		return err
	}
	done, err := purgeQueue(c, what, n)
	if err != nil {
		return err
	}
	q := url.Values{"did": {"purged"}, "n": {strconv.Itoa(done)}, "of": {strconv.Itoa(n)}}
	if what.Drop {
		q.Set("did", "dropped")
	}
	return c.SeeOther("/topology", q)
}

// purgeQueue removes up to n messages in batches, for at most about purgeTime. A large queue can require several
// requests.
func purgeQueue(c *web.Call, what api.PurgeQueue, n int) (done int, err error) {
	for begun := time.Now(); done < n && time.Since(begun) < purgeTime; {
		what.Limit = n - done
		some, err := c.PurgeQueue(what)
		done += some
		if err != nil && done > 0 {
			c.Logger.WarnContext(c.R.Context(), "purge stopped early", "queue", what.Queue, "purged", done, "error", err)
			return done, &fault.Failure{
				Status: http.StatusBadGateway, Text: fmt.Sprintf("the purge stopped after %d of %d messages", done, n), Advice: "see the log of the console for the error, and check the queue before you continue",
			}
		}
		if err != nil {
			return done, err
		}
		if some == 0 { // consumers have received the remaining messages
			break
		}
	}
	return done, nil
}
