// Package params converts values to URL parameters and back, without loss. A malformed parameter is an error. Except in
// lists and [Texts], a repeated or empty parameter is also an error. A Reader ignores unknown parameters.
//
// The package supports strings, [Text], [Texts], booleans, times, positive integers, lists of positive integers, and
// lists of strings. It imports only the standard library.
package params

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
)

// None is the value of the parameter for an empty list. A nil list has no parameter.
const None = "none"

// IsZero reports whether the value that pointer points to is not set. An empty list is set, unless it is nil. An empty map
// is not set.
func IsZero(pointer any) bool {
	v := reflect.ValueOf(pointer).Elem()
	return v.IsZero() || v.Kind() == reflect.Map && v.Len() == 0
}

// Write sets a parameter to the value that pointer points to, if that value is set.
func Write(v url.Values, name string, pointer any) {
	if IsZero(pointer) {
		return
	}
	switch x := pointer.(type) {
	case *Text:
		v.Set(name, x.Encode())
	case *time.Time:
		v.Set(name, x.Format(time.RFC3339Nano))
	case *Texts:
		v[name] = x.pairs()
	default:
		value := reflect.ValueOf(pointer).Elem()
		if value.Kind() != reflect.Slice {
			v.Set(name, fmt.Sprint(value))
			return
		}
		for i := range value.Len() {
			v.Add(name, fmt.Sprint(value.Index(i)))
		}
		if value.Len() == 0 {
			v.Set(name, None)
		}
	}
}

// Param is a parameter of a route or a field of a filter: its name, a pointer to the variable, and a help text.
type Param struct {
	Name string
	Of   any
	Help string
}

// Params are the parameters of a route or of a filter.
type Params []Param

// Names returns the names of the parameters.
func (all Params) Names() []string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	return names
}

// Values returns the parameters that are set.
func (all Params) Values() url.Values {
	v := url.Values{}
	for _, p := range all {
		Write(v, p.Name, p.Of)
	}
	return v
}

// Error is an error in the parameter Name.
type Error struct {
	Name string
	Err  error
}

func (e *Error) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Reader reads parameters and keeps the first error. A time may also be an age relative to Now, such as 90m, 24h or 7d.
type Reader struct {
	Values url.Values
	Now    time.Time
	Err    error
}

// Keep records the error of a parameter as an *[Error], unless there is an earlier error.
func (r *Reader) Keep(name string, err error) {
	if r.Err == nil && err != nil {
		r.Err = &Error{name, err}
	}
}

// ReadAll reads parameters.
func (r *Reader) ReadAll(all Params) {
	for _, p := range all {
		r.Read(p.Name, p.Of)
	}
}

// Read stores the value of a parameter in the variable that pointer points to, if the parameter is present.
func (r *Reader) Read(name string, pointer any) {
	values := r.Values[name]
	if len(values) == 0 {
		return
	}
	if x, ok := pointer.(*Texts); ok {
		r.Keep(name, x.read(values))
		return
	}
	if value := reflect.ValueOf(pointer).Elem(); value.Kind() == reflect.Slice {
		r.Keep(name, readList(name, values, value))
		return
	}
	switch {
	case len(values) > 1:
		r.Keep(name, fmt.Errorf("must be given once: got %d values", len(values)))
	case values[0] == "":
		r.Keep(name, errors.New("must not be empty (leave it out)"))
	default:
		r.Keep(name, r.readOne(values[0], pointer))
	}
}

func (r *Reader) readOne(text string, pointer any) (err error) {
	switch x := pointer.(type) {
	case *Text:
		return x.UnmarshalText([]byte(text))
	case *bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%s is not true or false", brief.Quoted(text))
		}
		*x = text == "true"
	case *time.Time:
		*x, err = ReadTime(text, r.Now, time.UTC)
	default:
		return readScalar(text, reflect.ValueOf(pointer).Elem())
	}
	return err
}

func readScalar(text string, to reflect.Value) error {
	if to.Kind() == reflect.String {
		to.SetString(text)
		return nil
	}
	bits := to.Type().Bits()
	if to.Kind() == reflect.Int {
		bits = 32 // fits into an integer column of any database
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil || n < 1 {
		return fmt.Errorf("%s is not a positive integer", brief.Quoted(text))
	}
	to.SetInt(n)
	return nil
}

func readList(name string, values []string, to reflect.Value) error {
	if slices.Equal(values, []string{None}) {
		to.Set(reflect.MakeSlice(to.Type(), 0, 0))
		return nil
	}
	list := reflect.MakeSlice(to.Type(), len(values), len(values))
	for i, text := range values {
		if err := readScalar(text, list.Index(i)); err != nil {
			return fmt.Errorf("%w (write each as %s=17)", err, name)
		}
	}
	to.Set(list)
	return nil
}

// timeLayouts contains the format of Write, the formats that users may write, and the formats that pages and commands show.
// A fraction of a second may follow the seconds.
var timeLayouts = []string{
	time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 Z07:00", "2006-01-02 15:04:05 MST", "2006-01-02 15:04 MST",
	"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02",
}

// ReadTime parses a time that a user has written: 2026-03-01T09:00:00Z, 2026-03-01 09:00 in zone, or 2h for two hours before
// now.
func ReadTime(text string, now time.Time, zone *time.Location) (time.Time, error) {
	written := strings.TrimSpace(text)
	for _, layout := range timeLayouts {
		t, err := time.ParseInLocation(layout, written, zone)
		if err != nil || t.IsZero() {
			continue
		}
		if strings.HasSuffix(layout, "MST") && t.Location() != zone && t.Location() != time.UTC {
			continue // an abbreviation of a different zone, which package time would read as UTC
		}
		if _, err := t.MarshalText(); err != nil {
			continue // an offset of 24 hours
		}
		return t, nil
	}
	if d, err := parseDuration(written); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%s is not a time (write 2026-01-31T12:00:00Z, 2026-01-31, or how long ago: 90m, 24h, 7d)", brief.Quoted(text))
}

// FromNow returns v in which the named parameters that are durations, such as 10m, are the times after this duration.
func FromNow(v url.Values, now time.Time, names ...string) url.Values {
	v = maps.Clone(v)
	for _, name := range names {
		if d, err := parseDuration(v.Get(name)); err == nil && len(v[name]) == 1 {
			v.Set(name, now.Add(d).Format(time.RFC3339Nano))
		}
	}
	return v
}
