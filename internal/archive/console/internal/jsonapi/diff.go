package jsonapi

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// maxDiff is the maximum size of a body that is compared line by line.
const maxDiff = 1 << 20

// difference compares the original content with the edited content.
func difference(original, edited failed.Content) api.Diff {
	a, b := api.ContentOf(original), api.ContentOf(edited)
	return api.Diff{
		Body:       bodyDiff(original.Body, edited.Body),
		Headers:    unified(fields(headerLines(original.Headers)), fields(headerLines(edited.Headers))),
		Properties: unified(fields(propertyLines(a.Properties)), fields(propertyLines(b.Properties))),
	}
}

func unified(before, after string) string { return udiff.Unified("original", "edited", before, after) }

func bodyDiff(before, after []byte) string {
	switch {
	case string(before) == string(after):
		return ""
	case len(before) > maxDiff || len(after) > maxDiff:
		return fmt.Sprintf("--- original\n+++ edited\n@@ %d bytes, now %d: too large to compare @@\n", len(before), len(after))
	case api.IsText(before) && api.IsText(after):
		return unified(string(before), string(after))
	}
	return unified(hex.Dump(before), hex.Dump(after))
}

func headerLines(t topology.Table) map[string]string {
	lines := make(map[string]string, len(t))
	for name, v := range t {
		text, err := tablejson.Encode(topology.Table{name: v})
		if err != nil {
			text = "?" // cannot fail, because the archive has encoded the value before
		}
		text = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
		lines[name] = text
	}
	return lines
}

func propertyLines(p api.Properties) map[string]string {
	b, _ := json.Marshal(p) // cannot fail
	var values map[string]json.RawMessage
	_ = json.Unmarshal(b, &values)
	lines := make(map[string]string, len(values))
	for name, v := range values {
		lines[name] = fmt.Sprintf("%q:%s", name, v)
	}
	return lines
}

// fields joins the lines in the order of their names.
func fields(lines map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		b.WriteString(lines[name])
		b.WriteByte('\n')
	}
	return b.String()
}
