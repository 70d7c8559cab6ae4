package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// completionPatience is how long a console may take to say what there is: somebody
// has pressed a key, and waits.
const completionPatience = 300 * time.Millisecond

// manyCandidates is how many groups or messages are asked for: a shell shows them all.
const manyCandidates = 50

// names tells the names of things that exist: queues of a configuration, and what is in
// an archive. What cannot be told has none, and nobody hears why.
type names struct {
	ctx     context.Context
	streams IO
	words   []string // of the command line
}

// of are the candidates for the value of a flag or an argument, of a command with
// these flags.
func (n names) of(v *kong.Value, flags []*kong.Flag) []candidate {
	has := func(name string) bool { return flagOf(flags, name) != nil }
	switch {
	case v.Name == "queue" && has("--config"):
		return n.configured()
	case !has("--server"):
		return nil
	case v.Name == "queue":
		return n.archived(func(ctx context.Context, c *api.Client) (found []candidate, err error) {
			all, err := c.Queues(ctx)
			for _, q := range all.Queues {
				found = append(found, candidate{string(q.Queue), plural(int(q.Counts.Failed), "failed message")})
			}
			return found, err
		})
	case v.Name == "group":
		return n.archived(func(ctx context.Context, c *api.Client) (found []candidate, err error) {
			all, err := c.Groups(ctx, api.GroupFilter{State: "failed"}, api.Page{Size: manyCandidates})
			for _, g := range all.Groups {
				found = append(found, candidate{strconv.FormatInt(g.ID, 10), string(g.Queue) + ": " + g.Text})
			}
			return found, err
		})
	case v.Name == "id" && v.Flag == nil:
		return n.archived(func(ctx context.Context, c *api.Client) (found []candidate, err error) {
			all, err := c.Messages(ctx, failed.Filter{States: []failed.State{failed.Failed}}, api.Page{Size: manyCandidates})
			for _, m := range all.Messages {
				found = append(found, candidate{strconv.FormatInt(m.ID, 10), string(m.Queue) + ": " + m.Error})
			}
			return found, err
		})
	}
	return nil
}

func (n names) configured() (found []candidate) {
	path := n.given("--config", "-c")
	if path == "" {
		path = "reprise.yaml"
	}
	cfg, err := config.Load(path)
	if err != nil {
		return nil
	}
	for _, w := range cfg.Workers {
		found = append(found, candidate{value: w.Queue})
	}
	return found
}

func (n names) archived(ask func(context.Context, *api.Client) ([]candidate, error)) []candidate {
	server := n.given("--server")
	if server == "" {
		server, _ = n.streams.Lookup("REPRISE_SERVER")
	}
	client, err := serverFlags{Server: server, TokenFile: n.given("--token-file")}.client(n.streams)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(n.ctx, completionPatience)
	defer cancel()
	found, err := ask(ctx, client)
	if err != nil {
		return nil
	}
	for i, c := range found {
		found[i] = candidate{oneLiner(c.value), oneLiner(c.help)}
	}
	return found
}

// given is the value of a flag on the command line, if it has one.
func (n names) given(flags ...string) string {
	for i, word := range n.words {
		for _, flag := range flags {
			if value, ok := strings.CutPrefix(word, flag+"="); ok {
				return value
			}
			if word == flag && i+1 < len(n.words) {
				return n.words[i+1]
			}
		}
	}
	return ""
}
