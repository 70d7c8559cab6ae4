package pages

import (
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/editor"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// publication is the form for a new message.
type publication struct {
	Queue   string // encoded as an api.Text
	Later   string // time at which the message leaves; "": now
	Form    *editor.EditFormView
	Problem string
	Where   string // field of the problem
	Body    show.BodyView
	Broken  bool // the content type is JSON, and the body is not
	Unsaved bool // the form was submitted and not sent
}

// publishForm shows an empty form.
func (p *Pages) publishForm(c *web.Call) error {
	form := &publication{Queue: c.Params.Get("queue"), Form: editor.NewPublishForm()}
	return showPublish(c, http.StatusOK, form, failed.Content{})
}

func showPublish(c *web.Call, status int, form *publication, content failed.Content) error {
	form.Body = show.ViewBody(content)
	media, _, _ := mime.ParseMediaType(content.Properties.ContentType)
	isJSON := media == "application/json" || strings.HasSuffix(media, "+json")
	form.Broken = isJSON && len(content.Body) > 0 && content.Properties.ContentEncoding == "" && !json.Valid(content.Body)
	if c.R.Header.Get("HX-Request") != "" {
		status = http.StatusOK // the user asked for a preview, so a problem is a result
	}
	return render(c, status, "publish", page{Title: "Publish", Nav: "topology"}, form)
}

// publish publishes the message in the form, or shows a preview.
func (p *Pages) publish(c *web.Call) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	form := &publication{Queue: v.Get("queue"), Later: v.Get("later"), Form: editor.ReadPublishForm(v), Unsaved: true}
	content, err := form.Form.Content(&failed.Message{})
	if err != nil {
		form.Problem = sentence(err.Error())
		return showPublish(c, http.StatusUnprocessableEntity, form, content)
	}
	message := api.Publish{Body: content.Body, Headers: api.Headers(content.Headers), Properties: api.ContentOf(content).Properties}
	if form.Later != "" {
		if message.At, message.In, err = moment(form.Later); err != nil {
			form.Problem, form.Where = sentence(err.Error()), "later"
			return showPublish(c, http.StatusUnprocessableEntity, form, content)
		}
	}
	if v.Get("do") != "publish" {
		return showPublish(c, http.StatusOK, form, content)
	}
	queue, err := queueIn(v)
	if err == nil {
		err = claimSubmission(c, v)
	}
	var done api.Published
	if err == nil {
		message.RoutingKey = api.Text(queue)
		done, err = c.Publish(message)
	}
	if err != nil {
		f := fault.AsFailure(err)
		if f == nil {
			return err
		}
		form.Problem = sentence(f.Text) + " " + sentence(f.Advice)
		return showPublish(c, f.Status, form, content)
	}
	if message.Later() {
		return c.SeeOther("/scheduled", map[string][]string{"due": {done.Due.Format(time.RFC3339)}})
	}
	return c.SeeOther("/topology", map[string][]string{"did": {"published"}})
}
