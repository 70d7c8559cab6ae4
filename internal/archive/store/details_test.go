package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

func TestDetails(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		plain := db.archive(t)
		ctx := t.Context()
		message := func(text, body string, headers topology.Table) failed.Message {
			return failed.Message{Queue: "q", Error: text, Content: failed.Content{Body: []byte(body), Headers: headers}}
		}
		ids := value(plain.Add(ctx, []failed.Message{
			message("down", "{\n  \"order\": {\"id\": 17, \"items\": [{\"sku\": \"A\\n1\"}]},\n  \"card\": \"4111\"}", topology.Table{"x-tenant": "acme"}),
			message("down", `{"order": {"id": 12345678901234567890}}`, topology.Table{"x-tenant": "bad\xff"}),
			message("down", "plain  text", nil),
			message("down", "\x00\x01binary", topology.Table{"x-tenant": topology.Table{"a": "b"}}),
			message("down", `{"order": `+strings.Repeat("[", 3000)+strings.Repeat("]", 3000)+`}`, nil),
			message("down", "{"+strings.Repeat(" ", 70<<10)+"}", topology.Table{"x-tenant": "big"}),
			message("other", "another group", nil),
		}))(t)
		details := func(a *store.Archive, hidden []failed.Rule, ids ...failed.ID) []string {
			list, _, err := a.List(ctx, failed.Filter{IDs: ids}, store.Page{})
			check(t, err)
			slices.Reverse(list) // oldest first
			return value(a.Details(ctx, list, hidden))(t)
		}
		configured := db.open(t, func(c *store.Config) {
			c.Prefix = plain.Config().Prefix
			c.Columns = []failed.Rule{{Path: "order.id"}, {Path: "order.items.*.sku"}, {Header: "x-tenant"}}
		})
		for name, c := range map[string]struct{ got, want []string }{
			"one group": {
				details(plain, nil, ids[0], ids[1], ids[2], ids[3]),
				[]string{`{ "order": {"id": 17, "items": [{"sku": "A\n1"}]}, "card": "4111"}`, `{"order": {"id": 12345678901234567890}}`, "plain text", ""},
			},
			"secrets": {
				details(plain, []failed.Rule{{Path: "card"}}, ids[0], ids[2]),
				[]string{`{ "order": {"id": 17, "items": [{"sku": "A\n1"}]}, "card": "[redacted]"}`, "plain text"},
			},
			"one message": {details(plain, nil, ids[0]), []string{""}},
			"two groups":  {details(plain, nil, ids[0], ids[6]), []string{"", ""}},
			"columns": {
				details(configured, nil, ids...),
				[]string{"id: 17, sku: A 1, x-tenant: acme", "id: 12345678901234567890, x-tenant: bad?", "", "", "", "", ""},
			},
			"hidden columns": {
				details(configured, []failed.Rule{{Header: "X-Tenant"}, {Path: "order.id"}}, ids[0]),
				[]string{"id: [redacted], sku: A 1, x-tenant: [redacted]"},
			},
		} {
			if !slices.Equal(c.got, c.want) {
				t.Errorf("%s: got %q, want %q", name, c.got, c.want)
			}
		}
	})
}
