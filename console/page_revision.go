package console

import (
	"fmt"
	"net/http"

	"github.com/reprisemq/reprise/failed"
)

// revision shows what an edit made of a message.
func (p *pages) revision(c *call) error {
	number, err := c.pathInt("number")
	if err != nil {
		return err
	}
	m, _, err := c.messageInPath()
	if err != nil {
		return err
	}
	r, hidden, err := c.revision(m.ID, int(number))
	if err != nil {
		return err
	}
	data := struct {
		M      *failed.Message
		R      *failed.Revision
		Edit   editDiff
		Body   bodyView
		Hidden bool // there are secrets in it
	}{m, r, compare(m.Content, r.Content), viewBody(r.Content), hidden}
	title := fmt.Sprintf("Message %d, revision %d", m.ID, r.Number)
	return c.render(http.StatusOK, "revision", page{Title: title, Nav: "groups"}, data)
}
