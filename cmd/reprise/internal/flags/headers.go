package flags

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// Headers parses headers on the command line: name=text, or name:=JSON for other types.
func Headers(args []string) (map[string]any, error) {
	if len(args) == 0 {
		return nil, nil
	}
	headers := make(map[string]any, len(args))
	for _, arg := range args {
		name, value, found := strings.Cut(arg, "=")
		typed := strings.HasSuffix(name, ":")
		name = strings.TrimSuffix(name, ":")
		if !found || name == "" {
			return nil, exit.Usagef("--header must be name=text or name:=JSON: got %s", brief.Quoted(arg))
		}
		if _, twice := headers[name]; twice {
			return nil, exit.Usagef("--header %s is set twice", brief.Quoted(name))
		}
		if !typed {
			headers[name] = value
			continue
		}
		v, err := parseJSON(value)
		if err != nil {
			return nil, exit.Usagef("--header %s must be JSON, such as 3, true or [\"a\"]: got %s: %w", name, brief.Quoted(value), err)
		}
		headers[name] = v
	}
	return headers, nil
}

func parseJSON(s string) (any, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("unexpected text after the value")
	}
	return amqp(v)
}

// amqp converts a JSON value to a header value. Integers have 64 bits.
func amqp(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i, nil
		}
		if !strings.ContainsAny(v.String(), ".eE") { // not silently rounded
			return nil, fmt.Errorf("integer must have at most 64 bits, with the sign: got %s (%[1]s.0 is a floating-point number)", v)
		}
		return v.Float64()
	case []any:
		for i, x := range v {
			var err error
			if v[i], err = amqp(x); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		t := topology.Table{}
		for key, x := range v {
			var err error
			if t[key], err = amqp(x); err != nil {
				return nil, err
			}
		}
		return t, nil
	}
	return v, nil
}
