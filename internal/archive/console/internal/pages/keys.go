package pages

import (
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/protocol"
)

var (
	keyNames     = []string{"queue", "key", "do"}
	keyFormNames = append([]string{"at_most", "since", "reason", "submission"}, keyNames...)
)

// queueKeys contains the blocked keys of a queue, prepared for a page.
type queueKeys struct {
	fleet.BlockedKeys
	Rows []keyRow
	More int // number of blocked keys that Rows omits
}

// keyRow is a blocked key.
type keyRow struct {
	protocol.BlockedKey
	IsDue bool // the attempt runs, or begins soon

	RetryHref, ParkHref, ParkAllHref template.URL
}

// keysOf returns the blocked keys of a queue, or nil if its workers do not keep the order of keys.
func keysOf(c *web.Call, workers []fleet.Worker, queue string) *queueKeys {
	all, _ := fleet.KeysOf(workers, queue, time.Time{})
	if all.Workers == 0 {
		return nil
	}
	keys := &queueKeys{BlockedKeys: all, More: all.Blocked - len(all.Keys)}
	for _, k := range all.Keys {
		href := func(do reprise.KeyAct) template.URL {
			v := url.Values{"queue": {queue}, "do": {string(do)}}
			if k.Key != "" {
				v.Set("key", k.Key)
			}
			return web.Href("/workers/key", v)
		}
		keys.Rows = append(keys.Rows, keyRow{k, !k.Next.After(c.Clock()), href(reprise.RetryFirst), href(reprise.ParkFirst), href(reprise.ParkAll)})
	}
	return keys
}

// keyVerbs contains the label of each act for a key.
var keyVerbs = map[reprise.KeyAct]string{reprise.RetryFirst: "Retry now", reprise.ParkFirst: "Park", reprise.ParkAll: "Park"}

// askKey shows the form that confirms an act for a key.
func (p *Pages) askKey(c *web.Call) error {
	act := api.KeyAct{Queue: c.Params.Get("queue"), Key: c.Params.Get("key"), Do: reprise.KeyAct(c.Params.Get("do"))}
	k, err := c.CheckKey(act)
	if err != nil {
		return err
	}
	form := struct {
		protocol.BlockedKey
		Queue, Verb string
		Do          reprise.KeyAct
		N           int
	}{k, act.Queue, keyVerbs[act.Do], act.Do, 1}
	if act.Do == reprise.ParkAll {
		form.N += k.Behind
	}
	return render(c, http.StatusOK, "worker_key", page{Title: form.Verb + " " + brief.Visible(k.Key), Nav: "workers"}, form)
}

// actOnKey processes the submitted form.
func (p *Pages) actOnKey(c *web.Call) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	act := api.KeyAct{Queue: v.Get("queue"), Key: v.Get("key"), Do: reprise.KeyAct(v.Get("do")), Reason: strings.TrimSpace(v.Get("reason"))}
	if act.AtMost, err = strconv.Atoi(v.Get("at_most")); err != nil || act.AtMost < 1 {
		return errNoCount
	}
	if act.Since, err = time.Parse(time.RFC3339Nano, v.Get("since")); err != nil {
		return fault.BadRequest("since must be the time that the form contains", "open the page again, and confirm the action there")
	}
	if _, err := c.CheckKey(act); err != nil {
		return err
	}
	if err := claimSubmission(c, v); err != nil {
		return err
	}
	done, err := c.ControlKey(act, false)
	if err != nil {
		return err
	}
	did := "parked"
	switch {
	case !done.Effect:
		did = "requested"
	case act.Do == reprise.RetryFirst:
		did = "retried"
	}
	return c.SeeOther("/workers", url.Values{"did": {did}, "n": {strconv.Itoa(done.Messages)}})
}
