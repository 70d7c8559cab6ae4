package console

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/console/internal/jsonapi"
)

// checkedConsole is a Console that validates its responses, and the bodies of successful requests, against the OpenAPI
// description.
type checkedConsole struct {
	testing.TB
	*Console
	doc  object
	mux  *http.ServeMux  // used only to match requests to patterns
	seen map[string]bool // operations that have succeeded
}

type object = map[string]any

func loadDescription(t testing.TB) object {
	t.Helper()
	var doc object
	if err := json.Unmarshal(jsonapi.Description, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// operations returns the operations of the description, by method and path.
func operations(doc object) map[string]object {
	all := map[string]object{}
	for path, item := range doc["paths"].(object) {
		for method, op := range item.(object) {
			all[strings.ToUpper(method)+" "+path] = op.(object)
		}
	}
	return all
}

func newCheckedConsole(t testing.TB, c *Console) *checkedConsole {
	t.Helper()
	d := &checkedConsole{t, c, loadDescription(t), http.NewServeMux(), map[string]bool{}}
	for name := range operations(d.doc) {
		method, path, _ := strings.Cut(name, " ")
		d.mux.Handle(method+" /api/v1"+path, http.NotFoundHandler())
	}
	return d
}

func (d *checkedConsole) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		d.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	d.Console.ServeHTTP(answer, r)

	_, pattern := d.mux.Handler(r)
	name := strings.Replace(pattern, "/api/v1", "", 1)
	op := operations(d.doc)[name]
	if op == nil {
		d.Errorf("%s %s is not described", r.Method, r.URL)
		return
	}
	if answer.Code < 300 {
		d.seen[name] = true
		if request, ok := op["requestBody"].(object); ok {
			if err := d.checkBody(request, r.Header.Get("Content-Type"), body); err != nil {
				d.Errorf("%s: request body does not match the description: %v", name, err)
			}
		} else if len(body) > 0 {
			d.Errorf("%s: request body is not described", name)
		}
	}
	responses := op["responses"].(object)
	response, ok := responses[strconv.Itoa(answer.Code)].(object)
	if !ok && answer.Code >= 300 {
		response, ok = responses["default"].(object)
	}
	if !ok {
		d.Errorf("%s: status %d is not described", name, answer.Code)
	} else if err := d.checkBody(d.resolve(response), answer.Header().Get("Content-Type"), answer.Body.Bytes()); err != nil {
		d.Errorf("%s: response does not match the description: %v", name, err)
	}

	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// checkBody validates a body against the schema of its content type.
func (d *checkedConsole) checkBody(of object, kind string, body []byte) error {
	media, ok := of["content"].(object)[kind].(object)
	if !ok {
		return fmt.Errorf("type %q is not described", kind)
	}
	if kind != "application/json" {
		return nil
	}
	var v any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		return err
	}
	return d.check("body", media["schema"], v)
}

// resolve returns the target of v if v is a $ref, and otherwise v itself.
func (d *checkedConsole) resolve(v any) object {
	o := v.(object)
	if all, ok := o["allOf"].([]any); ok { // a reference with a description
		return d.resolve(all[0])
	}
	ref, ok := o["$ref"].(string)
	if !ok {
		return o
	}
	var at any = d.doc
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(object)[name]
	}
	if at == nil {
		d.Fatalf("reference %s not found", ref)
	}
	return d.resolve(at)
}

// keywords are the schema keywords that check supports. A description does not restrict a value.
var keywords = []string{
	"$ref", "additionalProperties", "allOf", "description", "enum", "format", "items",
	"maximum", "minimum", "properties", "required", "type",
}

// check validates a value against a schema.
func (d *checkedConsole) check(at string, s, v any) error {
	schema := d.resolve(s)
	for k := range schema {
		if !slices.Contains(keywords, k) {
			return fmt.Errorf("%s: unsupported keyword %q", at, k)
		}
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, v) {
		return fmt.Errorf("%s: %v is not one of %v", at, v, enum)
	}
	var ok bool
	switch schema["type"] {
	case "object":
		var o object
		if o, ok = v.(object); ok {
			return d.checkObject(at, schema, o)
		}
	case "array":
		var list []any
		if list, ok = v.([]any); ok {
			for i, e := range list {
				if err := d.check(fmt.Sprintf("%s[%d]", at, i), schema["items"], e); err != nil {
					return err
				}
			}
		}
	case "string":
		var text string
		if text, ok = v.(string); ok {
			return checkFormat(at, schema["format"], text)
		}
	case "boolean":
		_, ok = v.(bool)
	case "integer", "number":
		var n json.Number
		if n, ok = v.(json.Number); ok {
			return checkNumber(at, schema, n)
		}
	}
	if !ok {
		return fmt.Errorf("%s: %v is not of type %v", at, v, schema["type"])
	}
	return nil
}

func (d *checkedConsole) checkObject(at string, schema, o object) error {
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := o[name.(string)]; !ok {
			return fmt.Errorf("%s.%s is missing", at, name)
		}
	}
	properties, _ := schema["properties"].(object)
	for name, v := range o {
		s, ok := properties[name]
		if !ok {
			s = schema["additionalProperties"]
		}
		switch s {
		case false, nil:
			return fmt.Errorf("%s.%s is not described", at, name)
		case true:
			continue
		}
		if err := d.check(at+"."+name, s, v); err != nil {
			return err
		}
	}
	return nil
}

func checkFormat(at string, format any, text string) error {
	var err error
	switch format {
	case nil:
	case "date-time":
		_, err = time.Parse(time.RFC3339Nano, text)
	case "byte":
		_, err = base64.StdEncoding.DecodeString(text)
	default:
		err = errors.ErrUnsupported
	}
	if err != nil {
		return fmt.Errorf("%s: %.40q is not of format %v: %w", at, text, format, err)
	}
	return nil
}

func checkNumber(at string, schema object, n json.Number) error {
	if schema["type"] == "integer" {
		if _, err := n.Int64(); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	f, err := n.Float64()
	if least, ok := schema["minimum"].(float64); ok && f < least {
		err = fmt.Errorf("%v is less than %v", n, least)
	}
	if most, ok := schema["maximum"].(float64); ok && f > most {
		err = fmt.Errorf("%v is more than %v", n, most)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}
