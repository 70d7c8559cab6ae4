package amqpwire

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// equal compares decoded values. A nil table equals an empty table, and NaN equals NaN.
func equal(want, have any) bool { return equalValues(reflect.ValueOf(want), reflect.ValueOf(have)) }

func equalValues(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid()
	}
	if a.Type() != b.Type() {
		return false
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		return equalValues(a.Elem(), b.Elem())
	case reflect.Float32, reflect.Float64:
		return a.Float() == b.Float() || math.IsNaN(a.Float()) && math.IsNaN(b.Float())
	case reflect.Slice:
		for i := 0; a.Len() == b.Len() && i < a.Len(); i++ {
			if !equalValues(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	case reflect.Struct:
		for i := range a.NumField() {
			if !equalValues(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	}
	return a.Equal(b)
}

func mustEqual(t testing.TB, want, have any) {
	t.Helper()
	if !equal(want, have) {
		t.Fatalf("\nwant %#v\nhave %#v", want, have)
	}
}

// allIDs finds the methods by trying all classes and methods below 256, because a second list of methods could have the same
// gaps as the list in the package.
func allIDs() []MethodID {
	var ids []MethodID
	for class := range uint32(256) {
		for method := range uint32(256) {
			if id := MethodID(class<<16 | method); NewMethod(id) != nil {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

var (
	genShort = rapid.StringN(0, -1, math.MaxUint8)
	genBytes = rapid.SliceOfN(rapid.Byte(), 0, 20)
	genTable = genTableOf(3)
)

func asAny[T any](g *rapid.Generator[T]) *rapid.Generator[any] { return g.AsAny() }

func genTableOf(depth int) *rapid.Generator[Table] {
	field := rapid.Custom(func(t *rapid.T) Field {
		return Field{Name: rapid.StringN(0, 8, -1).Draw(t, "name"), Value: genValueOf(depth).Draw(t, "value")}
	})
	return rapid.Map(rapid.SliceOfN(field, 0, 4), func(f []Field) Table { return f })
}

func genValueOf(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		asAny(rapid.Bool()),
		asAny(rapid.Int8()),
		asAny(rapid.Uint8()),
		asAny(rapid.Int16()),
		asAny(rapid.Uint16()),
		asAny(rapid.Int32()),
		asAny(rapid.Uint32()),
		asAny(rapid.Int64()),
		asAny(rapid.Map(rapid.Uint32(), math.Float32frombits)),
		asAny(rapid.Map(rapid.Uint64(), math.Float64frombits)),
		asAny(rapid.Map(rapid.Uint64(), func(v uint64) Timestamp { return Timestamp(v) })),
		asAny(rapid.Map(rapid.Uint64(), func(v uint64) Decimal { return Decimal{uint8(v >> 32), uint32(v)} })),
		asAny(rapid.StringN(0, 20, -1)),
		asAny(genBytes),
	}
	if depth > 1 {
		values := rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return genValueOf(depth - 1) }), 0, 3)
		kinds = append(kinds,
			asAny(rapid.Map(values, func(v []any) Array { return v })),
			asAny(rapid.Deferred(func() *rapid.Generator[Table] { return genTableOf(depth - 1) })))
	}
	return rapid.OneOf(kinds...)
}

// fill sets every field of a struct. Its strings are short enough for any field.
func fill(t *rapid.T, pointer any) {
	v := reflect.ValueOf(pointer).Elem()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if !f.CanSet() { // noArguments
			continue
		}
		switch f.Interface().(type) {
		case string:
			f.SetString(genShort.Draw(t, name))
		case bool:
			f.SetBool(rapid.Bool().Draw(t, name))
		case uint8:
			f.SetUint(uint64(rapid.Uint8().Draw(t, name)))
		case uint16:
			f.SetUint(uint64(rapid.Uint16().Draw(t, name)))
		case uint32:
			f.SetUint(uint64(rapid.Uint32().Draw(t, name)))
		case uint64:
			f.SetUint(rapid.Uint64().Draw(t, name))
		case Table:
			f.Set(reflect.ValueOf(genTable.Draw(t, name)))
		case PropertyFlags:
		default:
			t.Fatalf("no generator for field %s of type %v", name, f.Type())
		}
	}
}
