package pages

import (
	"net/http"
	"strconv"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/sift"
	"github.com/reprisemq/reprise/internal/brief"
)

// peekPage shows the first messages of a queue, or asks before a look.
type peekPage struct {
	Queue    string
	Ready    int64
	Cost     sift.Cost
	Limit    string
	MaxLimit int
	Messages []peekedMessage
	Looked   bool
	Hidden   bool // secrets are hidden
}

// peekedMessage is a message in a queue.
type peekedMessage struct {
	N               int
	ID              string
	Exchange, Key   string
	Redelivered     bool
	Body            show.BodyView
	Headers, System []show.HeaderRow
	Properties      []pair
}

func showPeek(c *web.Call, data peekPage) error {
	data.MaxLimit = sift.MaxLook
	return render(c, http.StatusOK, "peek", page{Title: "Messages in " + brief.Visible(data.Queue), Nav: "topology"}, data)
}

// askPeek shows what a look costs.
func (p *Pages) askPeek(c *web.Call) error {
	queue, err := queueIn(c.Params)
	if err != nil {
		return err
	}
	ready, cost, err := c.PeekCost(queue)
	if err != nil {
		return err
	}
	return showPeek(c, peekPage{Queue: queue, Ready: int64(ready), Cost: cost, Limit: "1"})
}

// peek looks at the first messages of a queue.
func (p *Pages) peek(c *web.Call) error {
	v, queue, err := queueForm(c)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(v.Get("limit"))
	if err != nil {
		return fault.BadRequest("the number of messages is not an integer", "enter a number from 1 to "+strconv.Itoa(sift.MaxLook))
	}
	data := peekPage{Queue: queue, Limit: v.Get("limit"), Looked: true}
	secrets := c.Secrets()
	var ready int
	ready, data.Cost, err = c.Peek(api.Peek{Queue: api.Text(queue), Limit: n, Counts: v.Get("counts") != ""}, func(m *reprise.Delivery) {
		data.Messages = append(data.Messages, viewPeeked(m, len(data.Messages)+1, secrets))
	})
	if err != nil {
		return err
	}
	data.Ready, data.Hidden = int64(ready), len(secrets) > 0
	return showPeek(c, data)
}

func viewPeeked(m *reprise.Delivery, n int, secrets []failed.Rule) peekedMessage {
	v := viewContent(failed.ContentOf(m).Redact(secrets))
	v.N, v.ID, v.Exchange, v.Key, v.Redelivered = n, m.MessageID, m.Exchange, m.RoutingKey, m.Redelivered
	return v
}

// viewContent returns the body, the headers and the properties of a message.
func viewContent(content failed.Content) peekedMessage {
	v := peekedMessage{Body: show.ViewBody(content)}
	v.Headers, v.System = show.SplitHeaders(content.Headers)
	rest := content.Properties
	rest.Exchange, rest.RoutingKey, rest.MessageID = "", "", "" // the head shows them
	v.Properties = properties(rest)
	return v
}
