package jsonapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/archive/waiting"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/protocol"
)

var update = flag.Bool("update", false, "write openapi.json")

// openapi.json describes the operations and their types. The texts are the Go comments.
func TestDescription(t *testing.T) {
	want, err := json.MarshalIndent(describeOperations(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(Description, want) {
		t.Error("openapi.json is outdated: run go test ./internal/archive/console/internal/jsonapi -update")
	}
}

type object = map[string]any

func describeOperations(t *testing.T) object {
	d := description{t, object{}, map[string]reflect.Type{}, map[string]string{}}
	failure := object{"description": "The request failed.", "content": content(d.schema(reflect.TypeFor[api.Error]()), "application/json")}
	paths := object{}
	for _, o := range Operations() {
		op := object{
			"summary":     o.Summary,
			"description": strings.TrimSpace("Role: " + o.Role.String() + ". " + o.Notes),
			"responses":   object{"default": object{"$ref": "#/components/responses/Error"}},
		}
		for status, body := range o.Responses {
			op["responses"].(object)[strconv.Itoa(status)] = object{"description": "Success.", "content": d.content(body)}
		}
		if len(o.Request.Media) > 0 {
			op["requestBody"] = object{"required": true, "content": d.content(o.Request)}
		}
		if list := d.parameters(o); len(list) > 0 {
			op["parameters"] = list
		}
		if paths[o.Path] == nil {
			paths[o.Path] = object{}
		}
		paths[o.Path].(object)[strings.ToLower(o.Method)] = op
	}
	return object{
		"openapi": "3.0.3",
		"info": object{
			"title": "Reprise console", "version": "1",
			"description": "Find, edit, replay and discard failed messages. Lists are paged: pass next as after until next is absent. A page before the last page can be short. The response is 400 to an unknown, empty, repeated or malformed parameter, and to a body with a name that is unknown, repeated or in another case. It is 404 if the group, message or replay does not exist. If your client can repeat a request that changes something, send the header Idempotency-Key (a random string of 1 to 100 bytes). The response to a second request with the same key is 409 without a change. The archive keeps keys for 30 days.",
			"license":     object{"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
		},
		"servers":  []any{object{"url": base}},
		"security": []any{object{"token": []string{}}, object{"session": []string{}}, object{}},
		"paths":    paths,
		"components": object{
			"schemas":   d.schemas,
			"responses": object{"Error": failure},
			"securitySchemes": object{
				"token":   object{"type": "http", "scheme": "bearer"},
				"session": object{"type": "apiKey", "in": "cookie", "name": "reprise_session"},
			},
		},
	}
}

// description collects the schemas of types.
type description struct {
	testing.TB
	schemas  object
	types    map[string]reflect.Type // by the name of the schema
	comments map[string]string       // see comment
}

func content(schema object, media ...string) object {
	all := object{}
	for _, m := range media {
		all[m] = object{"schema": schema}
	}
	return all
}

func (d *description) content(b Body) object {
	schema := object{"type": "string", "format": "binary"}
	if b.Type != nil {
		schema = d.schema(b.Type)
	}
	return content(schema, b.Media...)
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

func (d *description) parameters(o Operation) (list []any) {
	for _, m := range inPath.FindAllStringSubmatch(o.Path, -1) {
		list = append(list, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "integer", "format": "int64", "minimum": 1}})
	}
	for _, p := range o.Query {
		var schema object
		switch of := reflect.TypeOf(p.Of).Elem(); of {
		case reflect.TypeFor[time.Time]():
			schema = object{"type": "string"} // can also be a duration
		case reflect.TypeFor[params.Texts]():
			schema = object{"type": "array", "items": object{"type": "string"}}
		case reflect.TypeFor[[]failed.State]():
			schema = object{"type": "array", "items": object{"type": "string"}} // can also be all or none
		default:
			schema = d.schema(of)
		}
		list = append(list, object{"name": p.Name, "in": "query", "description": p.Help, "schema": schema})
	}
	return list
}

// names are the names of schemas of types whose names are not unique or clear.
var names = map[reflect.Type]string{
	reflect.TypeFor[api.Handling]():       "WorkerHandling",
	reflect.TypeFor[api.Pause]():          "WorkerPause",
	reflect.TypeFor[api.Resume]():         "WorkerResume",
	reflect.TypeFor[protocol.Counts]():    "WorkerCounts",
	reflect.TypeFor[protocol.Pause]():     "WorkerPaused",
	reflect.TypeFor[store.QueueSummary](): "Queue",
	reflect.TypeFor[waiting.Act]():        "WaitingAct",
}

// schema returns the schema of a type. The schema of a type with a comment is a reference.
func (d *description) schema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[[]byte]():
		return object{"type": "string", "format": "byte"}
	case reflect.TypeFor[json.RawMessage](): // a JSON Patch
		return object{"type": "array", "items": object{"type": "object"}}
	case reflect.TypeFor[map[string]any]():
		return object{"type": "object", "additionalProperties": true}
	case reflect.TypeFor[api.Headers]():
		return d.component(t, object{"type": "object", "additionalProperties": true})
	case reflect.TypeFor[params.Texts]():
		return object{"type": "object", "additionalProperties": object{"type": "string"}}
	case reflect.TypeFor[api.Text](), reflect.TypeFor[api.Duration](), reflect.TypeFor[api.Stamp]():
		return d.component(t, object{"type": "string"})
	case reflect.TypeFor[failed.State]():
		return d.component(t, object{"type": "string", "enum": failed.States()})
	case reflect.TypeFor[failed.Outcome]():
		return d.component(t, object{"type": "string", "enum": failed.Outcomes()})
	case reflect.TypeFor[ledger.State]():
		return d.component(t, object{"type": "string", "enum": []ledger.State{ledger.Opening, ledger.Balanced, ledger.Differs, ledger.Unknown}})
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Uint8:
		return object{"type": "integer", "minimum": 0, "maximum": 255}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Struct:
		if name := d.name(t); d.types[name] != t {
			o := object{"type": "object", "additionalProperties": false}
			d.component(t, o) // before the fields, which may refer to it
			d.fields(t, o)
		}
		return object{"$ref": "#/components/schemas/" + d.name(t)}
	}
	d.Fatalf("type %s has no schema", t)
	return nil
}

func (d *description) name(t reflect.Type) string {
	if name := names[t]; name != "" {
		return name
	}
	return t.Name()
}

// component adds the schema of a named type with its comment, and returns a reference to it.
func (d *description) component(t reflect.Type, o object) object {
	name := d.name(t)
	if other := d.types[name]; other != nil && other != t {
		d.Fatalf("types %s and %s have the same name", t, other)
	}
	if d.types[name] == nil {
		d.types[name], d.schemas[name] = t, o
		describe := d.comment(t, "")
		if describe != "" {
			o["description"] = describe
		}
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// fields adds the fields of a struct to its schema. Fields that encoding/json can omit, and fields with
// the tag openapi:"optional", are optional.
func (d *description) fields(t reflect.Type, o object) {
	properties, required := object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		s := d.schema(f.Type)
		if text := d.comment(ownerOf(t, f.Index), f.Name); text != "" {
			if s["$ref"] != nil { // which must not have other keywords
				s = object{"allOf": []any{s}}
			}
			s["description"] = text
		}
		properties[name] = s
		if !strings.Contains(options, "omit") && f.Tag.Get("openapi") != "optional" {
			required = append(required, name)
		}
	}
	o["properties"] = properties
	if len(required) > 0 {
		o["required"] = required
	}
}

// ownerOf returns the struct, possibly embedded in t, that declares the field with an index.
func ownerOf(t reflect.Type, index []int) reflect.Type {
	for _, i := range index[:len(index)-1] {
		if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}

// comment returns the comment of a type, or of a field of it, without line breaks.
func (d *description) comment(t reflect.Type, field string) string {
	if _, read := d.comments[t.PkgPath()]; !read {
		d.comments[t.PkgPath()] = ""
		maps.Copy(d.comments, commentsOf(d, t.PkgPath()))
	}
	return d.comments[strings.TrimSuffix(t.PkgPath()+"."+t.Name()+"."+field, ".")]
}

// commentsOf returns the comments of the types of a package of this module, and of their fields.
func commentsOf(t testing.TB, path string) map[string]string {
	all := map[string]string{}
	const root = "../../../../../" // of the module
	files, err := filepath.Glob(root + strings.TrimPrefix(path, "github.com/reprisemq/reprise") + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") }) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			types, _ := decl.(*ast.GenDecl)
			if types == nil || types.Tok != token.TYPE {
				continue
			}
			for _, s := range types.Specs {
				s := s.(*ast.TypeSpec)
				all[path+"."+s.Name.Name] = plain(types.Doc, s.Doc)
				if fields, ok := s.Type.(*ast.StructType); ok {
					for _, f := range fields.Fields.List {
						for _, n := range f.Names {
							all[path+"."+s.Name.Name+"."+n.Name] = plain(f.Doc, f.Comment)
						}
					}
				}
			}
		}
	}
	return all
}

// link matches a link in a Go comment.
var link = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

// plain returns the first comment that is not empty, in a line without links.
func plain(comments ...*ast.CommentGroup) string {
	for _, c := range comments {
		if text := c.Text(); text != "" {
			return link.ReplaceAllString(strings.Join(strings.Fields(text), " "), "$1")
		}
	}
	return ""
}
