package api_test

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/api"
)

// Indent returns the result of encoding/json, or false if the estimated size exceeds the limit.
func TestIndent(t *testing.T) {
	value := rapid.Custom(func(t *rapid.T) any { return drawJSON(t, 4) })
	rapid.Check(t, func(t *rapid.T) {
		body, err := json.Marshal(value.Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := json.Indent(&want, body, "", "  "); err != nil {
			t.Fatal(err)
		}
		most := rapid.IntRange(0, 2*want.Len()+16).Draw(t, "most")
		got, ok := api.Indent(body, most)
		switch {
		case ok && (!bytes.Equal(got, want.Bytes()) || len(got) > most):
			t.Fatalf("Indent(%s, %d): got %s, want %s", body, most, got, want.Bytes())
		case !ok && most >= 3*want.Len(): // the estimate for an empty {} includes a line
			t.Fatalf("Indent(%s, %d): got false", body, most)
		}
	})
}

func drawJSON(t *rapid.T, depth int) any {
	kinds := 3
	if depth > 0 {
		kinds = 5
	}
	switch rapid.IntRange(1, kinds).Draw(t, "kind") {
	case 1:
		return rapid.Int32().Draw(t, "number")
	case 2:
		return rapid.StringOf(rapid.SampledFrom([]rune(`a"\{}[],: `))).Draw(t, "text")
	case 3:
		return nil
	case 4:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range list {
			list[i] = drawJSON(t, depth-1)
		}
		return list
	}
	table := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "length") {
		table[rapid.StringOf(rapid.SampledFrom([]rune(`a"\{:`))).Draw(t, "name")] = drawJSON(t, depth-1)
	}
	return table
}

func TestIndentRejectsInvalidJSON(t *testing.T) {
	for _, body := range []string{"", "{", "]]]]", `{"a"`, `"\`, "nonsense"} {
		if got, ok := api.Indent([]byte(body), 1000); ok {
			t.Errorf("Indent(%q): got %q, want false", body, got)
		}
	}
}

// A message cannot exhaust the memory of the program that displays it.
func TestIndentLimitsMemory(t *testing.T) {
	const depth = 9000
	body := []byte(strings.Repeat("[", depth) + strings.Repeat("1,", depth) + "1" + strings.Repeat("]", depth))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok := api.Indent(body, 1<<20)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; ok || took > 1<<20 {
		t.Errorf("Indent of %d bytes allocated %d bytes, want at most %d, and returned %v", len(body), took, 1<<20, ok)
	}
}
