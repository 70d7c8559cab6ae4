package jsonpatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func apply(t testing.TB, doc, patch string) (string, error) {
	t.Helper()
	p, err := Parse([]byte(patch))
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	out, err := p.Apply([]byte(doc), 1000)
	return string(out), err
}

func TestApplyPreservesOtherBytes(t *testing.T) {
	for _, c := range []struct{ doc, patch, want string }{
		{`{ "b" : 1.10, "a": 12345678901234567890123, "c":[1, 2,3] }`, `[{"op":"replace","path":"/b","value":2.50}]`, `{ "b" : 2.50, "a": 12345678901234567890123, "c":[1, 2,3] }`},
		{`{"a":1,"a":2,"b":3}`, `[{"op":"replace","path":"/b","value":2}]`, `{"a":1,"a":2,"b":2}`},
		{`{"k\u00e9\/":"<&>\u2028\ud83d","y":1e400}`, `[{"op":"replace","path":"/y","value":2}]`, `{"k\u00e9\/":"<&>\u2028\ud83d","y":2}`},
		{`{"k\u00e9\/":1}`, `[{"op":"replace","path":"/ké~1","value":2}]`, `{"k\u00e9\/":2}`},
		{`{"~":1}`, `[{"op":"replace","path":"/~0","value":2}]`, `{"~":2}`},
		{`{"~1":1}`, `[{"op":"replace","path":"/~01","value":2}]`, `{"~1":2}`},
		{"{\"a\":\"\xff\",\"b\":1}", `[{"op":"replace","path":"/b","value":2}]`, "{\"a\":\"\xff\",\"b\":2}"},
		{"{\n  \"a\": 1,\n  \"b\": [\n    1\n  ]\n}\n", `[{"op":"add","path":"/c","value":3},{"op":"add","path":"/b/-","value":2}]`, "{\n  \"a\": 1,\n  \"b\": [\n    1,\n    2\n  ],\n  \"c\": 3\n}\n"},
		{`{"a":[1, 2]}`, `[{"op":"add","path":"/a/0","value":0},{"op":"add","path":"/a/3","value":3}]`, `{"a":[0, 1, 2, 3]}`},
		{`{}`, `[{"op":"add","path":"/<","value":[]},{"op":"add","path":"/</-","value":{}}]`, `{"<":[{}]}`},
		{`{"a":1}`, `[{"op":"add","path":"/a","value":null}]`, `{"a":null}`},
		{`{"a":1, "b":2 , "c":3}`, `[{"op":"remove","path":"/b"}]`, `{"a":1, "c":3}`},
		{`{"a":1, "b":2 , "c":3 }`, `[{"op":"remove","path":"/c"}]`, `{"a":1, "b":2 }`},
		{`[1, [2 ], 3]`, `[{"op":"remove","path":"/1/0"},{"op":"remove","path":"/0"}]`, `[[ ], 3]`},
		{`{"a":{"x": 1},"b":{}}`, `[{"op":"move","from":"/a/x","path":"/b/y"}]`, `{"a":{},"b":{"y":1}}`},
		{`{"a":{"x": 1}}`, `[{"op":"copy","from":"/a","path":"/b"},{"op":"replace","path":"/b/x","value":2}]`, `{"a":{"x": 1},"b":{"x": 2}}`},
		{`[1,2,3]`, `[{"op":"move","from":"/0","path":"/2"}]`, `[2,3,1]`},
		{` "x" `, `[{"op":"replace","path":"","value":{"a":1}}]`, ` {"a":1} `},
		{`{"":{"":1}}`, `[{"op":"replace","path":"//","value":2}]`, `{"":{"":2}}`},
		{`{"a":{"x":1.0,"y":[1e2]},"b":0}`, `[{"op":"test","path":"/a","value":{"y":[100.0],"x":1}},{"op":"replace","path":"/b","value":1}]`, `{"a":{"x":1.0,"y":[1e2]},"b":1}`},
	} {
		if got, err := apply(t, c.doc, c.patch); got != c.want || err != nil {
			t.Errorf("%s\n%s\n got %s %v\nwant %s", c.doc, c.patch, got, err, c.want)
		}
	}
}

func TestApplyReturnsErrorOfFailedOperation(t *testing.T) {
	for _, c := range []struct{ doc, patch, want string }{
		{`{"a":1}`, `[{"op":"replace","path":"/b","value":1}]`, "operation 1, replace: /b is missing"},
		{`{"a":1}`, `[{"op":"replace","path":"/a","value":2},{"op":"remove","path":"/b"}]`, "operation 2, remove: /b is missing"},
		{`{"a":1}`, `[{"op":"add","path":"/b/c","value":1}]`, "operation 1, add: /b is missing"},
		{`{"a":1}`, `[{"op":"add","path":"/a/c","value":1}]`, "operation 1, add: /a is not an object or an array"},
		{`{"a":1}`, `[{"op":"replace","path":"/a/c","value":1}]`, "operation 1, replace: /a/c is missing"},
		{`[1,2]`, `[{"op":"replace","path":"/01","value":1}]`, "operation 1, replace: /01 is not an index of an array"},
		{`[1,2]`, `[{"op":"replace","path":"/-","value":1}]`, "operation 1, replace: /- is not an index of an array"},
		{`[1,2]`, `[{"op":"add","path":"/3","value":1}]`, "operation 1, add: /3 is missing"},
		{`[1,2]`, `[{"op":"replace","path":"/2","value":1}]`, "operation 1, replace: /2 is missing"},
		{`{"a":1,"a":2}`, `[{"op":"replace","path":"/a","value":1}]`, "operation 1, replace: /a has a duplicate name"},
		{`{"a":1,"a":2}`, `[{"op":"add","path":"/a","value":1}]`, "operation 1, add: /a has a duplicate name"},
		{`{"a":9007199254740993}`, `[{"op":"test","path":"/a","value":9007199254740992}]`, "operation 1, test: /a has a different value"},
		{`{"a":{"x":1,"x":1}}`, `[{"op":"test","path":"/a","value":{"x":1,"x":1}}]`, "operation 1, test: /a has a different value"},
		{`{"a":{}}`, `[{"op":"test","path":"/a","value":{"x":1,"x":2}}]`, "operation 1, test: /a has a different value"},
		{`{"a":1}`, `[{"op":"test","path":"/b","value":null}]`, "operation 1, test: /b is missing"},
		{`{"a":"1"}`, `[{"op":"test","path":"/a","value":1}]`, "operation 1, test: /a has a different value"},
		{`{"a":1} x`, `[{"op":"remove","path":"/a"}]`, ErrNotJSON.Error()},
		{"\ufeff{\"a\":1}", `[{"op":"remove","path":"/a"}]`, ErrNotJSON.Error()},
		{``, `[{"op":"remove","path":"/a"}]`, ErrNotJSON.Error()},
		{`{"a":"` + strings.Repeat("x", 600) + `"}`, `[{"op":"copy","from":"/a","path":"/b"}]`, "operation 1, copy: " + ErrTooLarge.Error()},
	} {
		if got, err := apply(t, c.doc, c.patch); err == nil || err.Error() != c.want {
			t.Errorf("%s\n%s\n got %s %v\nwant %s", c.doc, c.patch, got, err, c.want)
		}
	}
}

func TestParseRejectsInvalidPatch(t *testing.T) {
	for _, patch := range []string{
		``, `{}`, `[]`, `[1]`, `[{}]`, `[{"op":"add","path":"/a"}]`, `[{"op":"add","value":1}]`, `[{"op":"frob","path":"/a"}]`,
		`[{"op":"replace","path":"a","value":1}]`, `[{"op":"replace","path":"/~2","value":1}]`, `[{"op":"replace","path":"/a","path":"/b","value":1}]`,
		`[{"op":"move","from":"/a","path":"/a/b"}]`, `[{"op":"move","path":"/a/b"}]`, `[{"op":1,"path":"/a"}]`, `[{"op":"remove","path":""}]`,
		`[{"op":"remove","path":"` + strings.Repeat("/a", maxDepth+1) + `"}]`,
		"[" + strings.TrimSuffix(strings.Repeat(`{"op":"remove","path":"/a"},`, maxOperations+1), ",") + "]",
	} {
		if _, err := Parse([]byte(patch)); err == nil {
			t.Errorf("Parse returned no error for %s", patch)
		}
	}
}

func TestEqualComparesNumbersByValue(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"1", "1.0", true},
		{"0", "-0.0e9", true},
		{"100", "1e2", true},
		{"0.01", "1E-2", true},
		{"-1", "1", false},
		{"10", "1", false},
		{"1e99999999999", "1e99999999999", true},
		{"1e99999999999", "1e99999999998", false},
		{"1.5", "15e-1", true},
		{"120", "12e1", true},
	} {
		if got := equal([]byte(c.a), []byte(c.b)); got != c.want {
			t.Errorf("equal(%s, %s): got %t, want %t", c.a, c.b, got, c.want)
		}
	}
}

// The result of random patches matches the result of a model that patches the decoded document.
func TestApplyMatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := drawJSON(3).Draw(t, "doc")
		var patch []map[string]any
		for range rapid.IntRange(1, 4).Draw(t, "operations") {
			o := map[string]any{"op": rapid.SampledFrom([]string{"add", "remove", "replace", "move", "copy", "test"}).Draw(t, "op"), "path": drawPath.Draw(t, "path")}
			switch o["op"] {
			case "add", "replace", "test":
				o["value"] = json.RawMessage(drawJSON(1).Draw(t, "value"))
			case "move", "copy":
				o["from"] = drawPath.Draw(t, "from")
			}
			patch = append(patch, o)
		}
		text, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(text)
		if err != nil {
			return
		}
		got, err := p.Apply([]byte(doc), 1<<20)
		want, wrong := modelApply(decode(doc), patch)
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%s\n%s\n got %s, %v\nwant %v, %v", doc, text, got, err, want, wrong)
		}
		if err == nil && (!json.Valid(got) || !reflect.DeepEqual(decode(string(got)), want)) {
			t.Fatalf("%s\n%s\n got %s\nwant %v", doc, text, got, want)
		}
		again, _ := p.Apply([]byte(doc), 1<<20)
		if !bytes.Equal(got, again) {
			t.Fatalf("Apply is not deterministic: got %s and %s", got, again)
		}
	})
}

var drawPath = rapid.Custom(func(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"/a", "/b", "/0", "/1", "/-", "/~1"}), 0, 3).Draw(t, "tokens"), "")
})

// drawJSON generates a document with random spaces.
func drawJSON(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		space := func() string { return rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space") }
		kind := rapid.IntRange(0, 5).Draw(t, "kind")
		if depth == 0 {
			kind %= 3
		}
		switch kind {
		case 0:
			return rapid.SampledFrom([]string{"1", "-2.50", "1e3", "null", "true"}).Draw(t, "word")
		case 1, 2:
			return rapid.SampledFrom([]string{`"x"`, `"\"}],"`, `""`, `"\\"`}).Draw(t, "string")
		}
		open, shut := "[", "]"
		if kind > 3 {
			open, shut = "{", "}"
		}
		var parts []string
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "0", "/", "c"}), 0, 4, func(s string) string { return s }).Draw(t, "names")
		for _, name := range names {
			part := space() + drawJSON(depth-1).Draw(t, "value") + space()
			if kind > 3 {
				part = space() + strconv.Quote(name) + space() + ":" + part
			}
			parts = append(parts, part)
		}
		return open + strings.Join(parts, ",") + space() + shut
	})
}

func decode(text string) (v any) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(err)
	}
	return v
}

var errModel = errors.New("not possible")

// modelApply implements RFC 6902 on decoded values.
func modelApply(doc any, patch []map[string]any) (any, error) {
	for _, o := range patch {
		path := tokens(o["path"].(string))
		var v any
		if raw, ok := o["value"].(json.RawMessage); ok {
			v = decode(string(raw))
		}
		var err error
		if from, ok := o["from"].(string); ok {
			if v, err = modelGet(doc, tokens(from)); err != nil {
				return nil, err
			}
			v = decode(string(encode(v)))
			if o["op"] == "move" && from != o["path"] {
				if doc, err = modelChange(doc, tokens(from), "remove", nil); err != nil {
					return nil, err
				}
			}
		}
		switch o["op"] {
		case "test":
			var got any
			if got, err = modelGet(doc, path); err == nil && !reflect.DeepEqual(got, v) {
				err = errModel
			}
		case "remove", "replace":
			doc, err = modelChange(doc, path, o["op"].(string), v)
		default:
			doc, err = modelChange(doc, path, "add", v)
		}
		if err != nil {
			return nil, err
		}
	}
	return doc, nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func tokens(path string) []string {
	if path == "" {
		return nil
	}
	all := strings.Split(path[1:], "/")
	for i, token := range all {
		all[i] = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return all
}

func modelGet(doc any, path []string) (any, error) {
	for _, token := range path {
		switch x := doc.(type) {
		case map[string]any:
			v, found := x[token]
			if !found {
				return nil, errModel
			}
			doc = v
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(x) || fmt.Sprint(i) != token {
				return nil, errModel
			}
			doc = x[i]
		default:
			return nil, errModel
		}
	}
	return doc, nil
}

func modelChange(doc any, path []string, how string, v any) (any, error) {
	if len(path) == 0 {
		return v, nil
	}
	parent, err := modelGet(doc, path[:len(path)-1])
	if err != nil {
		return nil, err
	}
	last := path[len(path)-1]
	switch x := parent.(type) {
	case map[string]any:
		if _, found := x[last]; !found && how != "add" {
			return nil, errModel
		}
		x = maps.Clone(x)
		if x[last] = v; how == "remove" {
			delete(x, last)
		}
		return modelChange(doc, path[:len(path)-1], "replace", x)
	case []any:
		if last == "-" && how == "add" {
			last = fmt.Sprint(len(x))
		}
		i, err := strconv.Atoi(last)
		if err != nil || i < 0 || fmt.Sprint(i) != last || i > len(x) || i == len(x) && how != "add" {
			return nil, errModel
		}
		x = slices.Clone(x)
		switch how {
		case "add":
			x = slices.Insert(x, i, v)
		case "remove":
			x = slices.Delete(x, i, i+1)
		default:
			x[i] = v
		}
		return modelChange(doc, path[:len(path)-1], "replace", x)
	}
	return nil, errModel
}

func FuzzApply(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":2}]}`), []byte(`[{"op":"add","path":"/a/1/c","value":3}]`))
	f.Fuzz(func(t *testing.T, doc, patch []byte) {
		p, err := Parse(patch)
		if err != nil {
			return
		}
		before := bytes.Clone(doc)
		got, err := p.Apply(doc, 1<<20)
		if err == nil && !json.Valid(got) {
			t.Errorf("result is not JSON: %q", got)
		}
		if !bytes.Equal(doc, before) {
			t.Error("Apply changed the document")
		}
	})
}
