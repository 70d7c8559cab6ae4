package coverart_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestIndexJSON(t *testing.T) {
	r := &coverart.Release{GID: gidA, Images: []coverart.Image{
		{ID: 829521842, Types: []string{"Front"}, Front: true, Approved: true, Edit: 17462565},
		{ID: 829521843, Types: []string{"Back", "Spine"}, Back: true, Comment: `"CD & DVD" <1994>`, Suffix: "png"},
		{ID: 829521844},
	}}
	got, err := coverart.IndexJSON(r)
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/index.json"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	// An encoder for maps, which sorts the keys, produces the same output.
	var generic any
	if err := json.Unmarshal(got, &generic); err != nil {
		t.Fatal(err)
	}
	var sorted bytes.Buffer
	enc := json.NewEncoder(&sorted)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(numbers(generic)); err != nil {
		t.Fatal(err)
	}
	if s := bytes.TrimSpace(sorted.Bytes()); !bytes.Equal(got, s) {
		t.Errorf("keys are not sorted:\n%s\n%s", got, s)
	}
}

// numbers converts floats to integers, because package json decodes integers as floats, and encodes large floats with
// an exponent.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case float64:
		return int64(v)
	}
	return v
}

func TestIndexJSONWithoutImages(t *testing.T) {
	got, err := coverart.IndexJSON(&coverart.Release{GID: gidA})
	want := `{"images":[],"release":"https://musicbrainz.org/release/` + gidA + `"}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}
