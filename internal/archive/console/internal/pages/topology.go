package pages

import (
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/flow"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/graph"
)

// maxDrawn is the maximum number of exchanges and queues in a drawing, and of queues in the list below it. A larger
// topology is not drawn.
const maxDrawn = 300

// topology draws the exchanges and queues with their current depths.
func (p *Pages) topology(c *web.Call) error {
	s, err := p.system(c)
	if err != nil {
		return err
	}
	data := struct {
		Trees   []*flow.Step  // drawing
		Queues  []topologyRow // description in words
		TooMany bool
		Live    bool
		Broker  bool // whether the console can publish messages and purge queues
		Problem string
	}{Broker: c.HasBroker(), Live: s.problem == nil, Problem: s.noFigures(), TooMany: len(s.graph.Nodes) > maxDrawn}
	if len(s.graph.Nodes) > 0 && !data.TooMany {
		data.Trees = flow.Trees(s.graph)
	}
	for _, n := range s.graph.Nodes {
		if n.Kind != graph.Exchange && len(data.Queues) < maxDrawn {
			data.Queues = append(data.Queues, s.topologyRow(n))
		}
	}
	return render(c, http.StatusOK, "topology", page{Title: "Topology", Nav: "topology", Flash: readFlash(c)}, data)
}

// queueHref returns the URL of the page at path, for a queue.
func queueHref(path, queue string) template.URL {
	return web.Href(path, url.Values{"queue": {api.Text(queue).Encode()}})
}

// topologyRow describes a queue in words.
type topologyRow struct {
	graph.Node
	From, To []string // sources and destinations of its messages
	Archived bool     // the archive has messages of the queue
	Queue    string
	Publish  template.URL // "": not a work queue
	Purge    template.URL // "": a wait queue
	Peek     template.URL // "": a wait queue
}

func (s *system) topologyRow(n graph.Node) topologyRow {
	r := topologyRow{Node: n, Queue: strings.TrimPrefix(n.ID, "queue/")}
	_, keyed := s.figures[flow.HeldQueues(r.Queue)] // the row represents all partitions
	if n.Kind != graph.Wait && !keyed {             // a row may represent several wait queues
		r.Purge, r.Peek = queueHref("/queues/purge", r.Queue), queueHref("/queues/peek", r.Queue)
	}
	if n.Kind != graph.Wait && n.Kind != graph.Failed && !keyed {
		r.Publish = queueHref("/publish", r.Queue)
	}
	_, r.Archived = s.archived[r.Queue]
	name := func(id string) string {
		_, name, _ := strings.Cut(id, "/")
		return brief.Visible(name)
	}
	for _, e := range s.graph.Edges {
		label := ""
		if len(e.Labels) > 0 {
			label = " (" + strings.Join(e.Labels, ", ") + ")"
		}
		if e.From == n.ID {
			r.To = append(r.To, name(e.To)+label)
		}
		if e.To == n.ID {
			r.From = append(r.From, name(e.From)+label)
		}
	}
	return r
}
