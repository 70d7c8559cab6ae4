package web

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/brief"
)

// checkFields reads one JSON value that encoding/json can decode into type t. It returns an error for two defects that
// encoding/json tolerates: a repeated name in an object, and a name that differs from a field only in case. If t is
// nil, objects may contain any names.
func checkFields(d *json.Decoder, t reflect.Type) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	fields, element := jsonFields(t)
	switch token {
	case json.Delim('['):
		for d.More() {
			if err := checkFields(d, element); err != nil {
				return err
			}
		}
	case json.Delim('{'):
		seen := map[api.Text]bool{}
		for d.More() {
			token, err := d.Token()
			if err != nil {
				return err
			}
			written := token.(string) // the decoder returns only strings as names
			var name api.Text
			if name.UnmarshalText([]byte(written)) != nil {
				name = api.Text(written)
			}
			if seen[name] {
				return fmt.Errorf("field %s is repeated", brief.Quoted(written))
			}
			seen[name] = true
			value := element
			if fields != nil {
				field, ok := fields[written]
				if !ok {
					return fmt.Errorf("unknown field %s", brief.Quoted(written))
				}
				value = field
			}
			if err := checkFields(d, value); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	_, err = d.Token() // the end of the array or object
	return err
}

// jsonFields returns the JSON names and types of a struct's fields, or the element type of a list or map. It returns
// nil for a type that implements json.Unmarshaler.
func jsonFields(t reflect.Type) (fields map[string]reflect.Type, element reflect.Type) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil, nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		return nil, t.Elem()
	case reflect.Struct:
		fields = map[string]reflect.Type{}
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				fields[name] = f.Type
			}
		}
	}
	return fields, nil
}
