package framework

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/jsonpatch"
)

// dramatiq: https://dramatiq.io/guide.html#dead-letters. Everything is in the JSON body; a queue X has the queue X.XQ for dead
// letters and X.DQ for retries. With its last number of retries, the next failure is final.
var dramatiq = framework{
	name: "dramatiq",
	read: func(m message) (failure, bool) {
		body, ok := readDramatiq(m.Body)
		f := failure{queue: strings.TrimSuffix(body.Queue, ".DQ"), text: "actor " + body.Actor + " was rejected", attempts: max(body.Options.Retries, 0) + 1}
		if trace := body.Options.Traceback; trace != "" {
			f.text, f.stack = lastLine(trace), trace
		}
		return f, ok
	},
	unsigned: true,
	owns:     func(string) bool { return false },
	restore: func(c *failed.Content) error {
		body, ok := readDramatiq(c.Body)
		if !ok {
			return nil
		}
		type op struct {
			Op    string `json:"op"`
			Path  string `json:"path"`
			Value any    `json:"value"`
		}
		var ops []op
		if body.has("retries") {
			ops = append(ops, op{"replace", "/options/retries", 0})
		}
		for _, name := range []string{"traceback", "requeue_timestamp", "eta"} {
			if body.has(name) {
				ops = append(ops, op{"remove", "/options/" + name, nil})
			}
		}
		if before, ok0 := strings.CutSuffix(body.Queue, ".DQ"); ok0 {
			ops = append(ops, op{"replace", "/queue_name", before})
		}
		text, err := json.Marshal(ops)
		if err != nil {
			return err
		}
		patch, err := jsonpatch.Parse(text)
		if err != nil || len(ops) == 0 {
			return err
		}
		c.Body, err = patch.Apply(c.Body, len(c.Body)+64)
		return err
	},
}

// dramatiqBody is the body of a message of dramatiq.
type dramatiqBody struct {
	Queue   string          `json:"queue_name"`
	Actor   string          `json:"actor_name"`
	ID      string          `json:"message_id"`
	Args    json.RawMessage `json:"args"`
	Kwargs  json.RawMessage `json:"kwargs"`
	Options struct {
		Retries   int    `json:"retries"`
		Traceback string `json:"traceback"`
	} `json:"options"`
	all struct {
		Options map[string]json.RawMessage `json:"options"`
	}
}

func (b dramatiqBody) has(option string) bool { return b.all.Options[option] != nil }

func readDramatiq(text []byte) (b dramatiqBody, ok bool) {
	if !bytes.Contains(text, []byte(`"actor_name"`)) || json.Unmarshal(text, &b) != nil || json.Unmarshal(text, &b.all) != nil {
		return b, false
	}
	return b, b.Queue != "" && b.Actor != "" && b.ID != "" && b.Args != nil && b.Kwargs != nil && b.all.Options != nil
}
