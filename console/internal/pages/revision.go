package pages

import (
	"fmt"
	"net/http"

	"github.com/reprisemq/reprise/console/internal/editor"
	"github.com/reprisemq/reprise/console/internal/show"
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/failed"
)

// revision shows what an edit made of a message.
func (p *Pages) revision(c *web.Call, id failed.ID) error {
	number, err := pathInt(c, "number")
	if err != nil {
		return err
	}
	m, _, err := c.Message(id)
	if err != nil {
		return err
	}
	r, hidden, err := c.Revision(m.ID, int(number))
	if err != nil {
		return err
	}
	data := struct {
		M      *failed.Message
		R      *failed.Revision
		Edit   editor.EditDiff
		Body   show.BodyView
		Hidden bool // there are secrets in it
	}{m, r, editor.Compare(m.Content, r.Content), show.ViewBody(r.Content), hidden}
	title := fmt.Sprintf("Message %d, revision %d", m.ID, r.Number)
	return render(c, http.StatusOK, "revision", page{Title: title, Nav: "groups"}, data)
}
