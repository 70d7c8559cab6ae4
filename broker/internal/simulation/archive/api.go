package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/params"
)

// request sends a request to the JSON API.
func request(p *Process, actor, method, path string, body, answer any) (status int, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(b))
	r.Host, r.RemoteAddr = "127.0.0.1", "127.0.0.1:40000"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Reprise-Actor", actor)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	if w.Code < 300 && answer != nil {
		err = json.Unmarshal(w.Body.Bytes(), answer)
	}
	return w.Code, err
}

// ByAPI acts through the JSON API, after a dry run that returns the number of messages.
func (s *System) ByAPI(verb string, random *rand.Rand, wait time.Duration) {
	i := s.intent(verb, random)
	s.act(&i, func(b *Browser) (int64, actOutcome) {
		p := b.Console.(*Process)
		all, err := s.Rows()
		if err != nil || len(all) == 0 {
			return 0, actOutcome{}
		}
		var chosen Row
		for _, r := range all {
			if chosen.ID == 0 || r.ID%7 < chosen.ID%7 {
				chosen = r
			}
		}
		filter := map[string]any{"queue": chosen.Queue}
		i.selects = func(r Row) bool { return r.Queue == chosen.Queue }
		if random.IntN(2) == 0 {
			filter = map[string]any{"error": "declined after"}
			i.selects = func(r Row) bool { return strings.Contains(r.Error, "declined after") }
		}
		selection := map[string]any{"filter": filter}
		path := map[string]string{"discard": "/api/v1/discard", "restore": "/api/v1/restore", "replay": "/api/v1/replays"}[verb]
		var dry struct {
			Messages int64 `json:"messages"`
		}
		if status, err := request(p, i.actor, http.MethodPost, path+"?dry_run=true", with(selection, "reason", map[bool]any{true: i.reason}[verb == "discard"]), &dry); err != nil || status != http.StatusOK {
			return 0, actOutcome{}
		}
		if dry.Messages == 0 {
			return 0, actOutcome{}
		}
		selection["at_most"] = dry.Messages
		if verb == "discard" {
			selection["reason"] = i.reason
		}
		if wait > 0 {
			time.Sleep(wait)
		}
		e := actOutcome{n: -1, before: s.exclusiveRows()}
		if e.before == nil {
			return 0, actOutcome{}
		}
		var answer struct {
			Messages int64 `json:"messages"`
			ID       int64 `json:"id"`
		}
		if e.status, err = request(p, i.actor, http.MethodPost, path, selection, &answer); err != nil {
			e.problem = err.Error()
			return dry.Messages, e
		}
		if e.status/100 == 2 {
			e.status = http.StatusOK
			e.replay = failed.ReplayID(answer.ID)
			if verb != "replay" {
				e.n = answer.Messages
			}
		}
		return dry.Messages, e
	})
}

func with(m map[string]any, name string, value any) map[string]any {
	all := map[string]any{}
	maps.Copy(all, m)
	if value != nil {
		all[name] = value
	}
	return all
}

// ByGo acts through the methods of the archive.
func (s *System) ByGo(verb string, random *rand.Rand) {
	i := s.intent(verb, random)
	s.act(&i, func(b *Browser) (int64, actOutcome) {
		a := b.Console.(*Process).Archive()
		queue := []string{Orders, Mails, Covers}[random.IntN(3)]
		f := failed.Filter{Queue: params.Text(queue)}
		i.selects = func(r Row) bool { return r.Queue == queue }
		if random.IntN(4) == 0 {
			f = failed.Filter{All: true}
			i.selects = func(Row) bool { return true }
		}
		e := actOutcome{n: -1, before: s.exclusiveRows(), status: http.StatusOK}
		if e.before == nil {
			return 0, actOutcome{}
		}
		ctx := context.Background()
		switch verb {
		case "discard":
			e.n, e.err = a.Discard(ctx, f, i.reason, failed.Actor(i.actor))
		case "restore":
			e.n, e.err = a.Restore(ctx, f, failed.Actor(i.actor))
		default:
			var r *failed.Replay
			plan := failed.Plan{Filter: f, Rate: float64(random.IntN(3) * 20), Ramp: random.IntN(3) == 0, IgnoreSame: random.IntN(2) == 0}
			if random.IntN(4) == 0 {
				plan.Canary = time.Duration(1+random.IntN(60)) * time.Second
			}
			if r, e.err = a.BeginReplay(ctx, plan, failed.Actor(i.actor)); r != nil {
				e.replay = r.ID
			}
		}
		if errors.Is(e.err, failed.ErrNotFound) {
			e.err = nil
			<-s.acting
			return 0, actOutcome{}
		}
		return int64(len(e.before)) + 1000, e // the method does not announce a number
	})
}
