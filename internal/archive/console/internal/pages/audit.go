package pages

import (
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
)

// actRow is an entry of the audit log.
type actRow struct {
	store.Act
	Name string // name of the object
	Href string // URL of the page about the object

	Undo, Messages template.URL // URLs for the messages that the act has changed, or ""

	Details []pair
}

// audit lists the acts of all users.
func (p *Pages) audit(c *web.Call) error {
	data := struct {
		Acts  []actRow
		Next  template.URL
		Form  url.Values
		Wrong wrong
	}{Form: web.Only(c.Params, api.ActNames)}
	f, err := api.ParseActs(data.Form, c.Clock())
	if invalid, ok := errors.AsType[*params.Error](err); ok {
		data.Wrong = wrong{invalid.Name, sentence(invalid.Err.Error())}
		return render(c, http.StatusBadRequest, "audit", page{Title: "Audit log", Nav: "audit"}, data)
	}
	acts, next, err := c.Archive.Acts(c.R.Context(), f, store.Page{After: c.Params.Get("after")})
	if err != nil {
		return err
	}
	data.Next = nextPage("/audit", data.Form, next)
	for _, a := range acts {
		row := actRow{Act: a, Name: brief.Visible(strings.Replace(a.Subject, "/", " ", 1)), Href: subjectHref(a.Subject), Details: details(a.Details)}
		changed := failed.Filter{Act: a.ID}
		switch a.Verb {
		case "discard":
			row.Undo = web.HrefMessages("/restore", changed)
			row.Messages = web.HrefMessages("/messages", changed)
		case "restore":
			row.Messages = web.HrefMessages("/messages", changed)
		}
		data.Acts = append(data.Acts, row)
	}
	return render(c, http.StatusOK, "audit", page{Title: "Audit log", Nav: "audit"}, data)
}

// subjectHref returns the URL of the page about an act's object, or "" if the object has no page.
func subjectHref(subject string) string {
	kind, id, ok := strings.Cut(subject, "/")
	if kind == "queue" || kind == "worker" {
		return "/workers"
	}
	if !ok || id == "" || strings.Trim(id, "0123456789") != "" {
		return ""
	}
	if kind == "message" || kind == "replay" || kind == "group" {
		return "/" + kind + "s/" + id
	}
	return ""
}

// details formats the details of an act, sorted by name. It omits empty details.
func details(d map[string]any) []pair {
	var all []pair
	for _, name := range slices.Sorted(maps.Keys(d)) {
		if text := detail(d[name]); text != "" {
			all = append(all, pair{brief.Visible(name), brief.Clip(text, 400)})
		}
	}
	return all
}

// detail formats a value for users. It omits empty parts, and returns "" for an empty value.
func detail(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if d, err := time.ParseDuration(v); err == nil && strings.HasSuffix(v, "s") {
			if d == 0 { // an unset value
				return ""
			}
			return show.Exactly(d)
		}
		return brief.Visible(v)
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if text := detail(v[name]); text != "" {
				parts = append(parts, brief.Visible(name)+": "+text)
			}
		}
		return strings.Join(parts, ", ")
	case []any:
		if n := len(v); n > 8 {
			return show.Thousands(int64(n)) + " of them"
		}
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = detail(e)
		}
		return strings.Join(parts, ", ")
	case bool:
		if v {
			return "yes"
		}
		return ""
	case float64:
		if v == 0 {
			return ""
		}
		return show.Decimal(v)
	case int64:
		return fmt.Sprint(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return brief.Visible(string(text))
}
