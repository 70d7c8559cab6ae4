package failed_test

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/claimcheck"
	"github.com/reprisemq/reprise/encryption"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/topology"
)

// A worker can read the message after each permitted edit.
func TestEditedTo(t *testing.T) {
	check, err := claimcheck.New(claimcheck.Config{Store: claimcheck.Dir(t.TempDir()), Threshold: -1})
	if err != nil {
		t.Fatal(err)
	}
	m := reprise.Message{Body: []byte("body")}
	if err := check.BeforePublish(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	plain := failed.Content{Body: []byte("body"), Headers: topology.Table{"tenant": "acme"}, Properties: failed.Properties{MessageID: "1"}}
	stored := plain
	stored.Body, stored.Headers = m.Body, topology.Table{"tenant": "acme", claimcheck.Header: m.Headers[claimcheck.Header]}
	encrypted := plain
	encrypted.Headers = topology.Table{"tenant": "acme", encryption.Header: "key"}
	both := stored
	both.Headers = maps.Clone(stored.Headers)
	both.Headers[encryption.Header] = "key"
	body := func(c *failed.Content) { c.Body = []byte("edited") }
	id := func(c *failed.Content) { c.Properties.MessageID = "2" }
	header := func(c *failed.Content) { c.Headers["tenant"] = "other" }
	unseal := func(c *failed.Content) {
		body(c)
		delete(c.Headers, encryption.Header)
	}
	for name, tc := range map[string]struct {
		before  failed.Content
		edit    func(*failed.Content)
		refused bool
		headers int
	}{
		"plain, body":            {plain, body, false, 1},
		"plain, id":              {plain, id, false, 1},
		"stored, body":           {stored, body, false, 1},
		"stored, id":             {stored, id, false, 2},
		"stored, header":         {stored, header, false, 2},
		"encrypted, body":        {encrypted, body, true, 2},
		"encrypted, id":          {encrypted, id, true, 2},
		"encrypted, header":      {encrypted, header, false, 2},
		"encrypted, plain body":  {encrypted, unseal, false, 1},
		"both, body":             {both, body, true, 3},
		"both, header":           {both, header, false, 3},
		"both, plain body":       {both, unseal, false, 1},
		"stored, no other value": {stored, func(*failed.Content) {}, false, 2},
	} {
		after := tc.before
		after.Headers = maps.Clone(tc.before.Headers)
		tc.edit(&after)
		got, err := tc.before.EditedTo(after)
		if errors.Is(err, failed.ErrUneditable) != tc.refused || !bytes.Equal(got.Body, after.Body) || len(got.Headers) != tc.headers {
			t.Errorf("%s: got %q, %v, %v", name, got.Body, got.Headers, err)
		}
	}
}
