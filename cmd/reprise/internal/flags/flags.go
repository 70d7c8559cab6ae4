// Package flags parses values of flags and arguments that several commands have.
package flags

import (
	"encoding"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/internal/brief"
)

// Mappers contains the parsers of flags whose values are numbers or durations. They accept the same forms as the file
// of reprise up. Flags with type:"address" contain the address of a broker, a server or a store.
var Mappers = []kong.Option{
	kong.KindMapper(reflect.Int, flag(whole)),
	kong.KindMapper(reflect.Int64, flag(whole)),
	kong.KindMapper(reflect.Uint8, flag(natural)),
	kong.KindMapper(reflect.Uint64, flag(natural)),
	kong.KindMapper(reflect.Float64, flag(decimal)),
	kong.TypeMapper(reflect.TypeFor[time.Duration](), flag(timespan)),
	kong.TypeMapper(reflect.TypeFor[Moment](), flag(unmarshaled)),
	kong.TypeMapper(reflect.TypeFor[PerSecond](), flag(unmarshaled)),
	kong.TypeMapper(reflect.TypeFor[Size](), flag(unmarshaled)),
	kong.NamedMapper("address", flag(address)),
}

// flag returns a mapper that parses the value of a flag with the function read. A negative value is not a flag, so that read can
// explain the permitted values.
func flag(read func(text string, target reflect.Value) error) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		if text := fmt.Sprint(ctx.Scan.Peek().Value); negative.MatchString(text) {
			ctx.Scan.Pop()
			return read(text, target)
		}
		token, err := ctx.Scan.PopValue("number")
		if err != nil {
			return err
		}
		return read(fmt.Sprint(token.Value), target)
	}
}

var negative = regexp.MustCompile(`^-[.\d]`)

func unmarshaled(text string, target reflect.Value) error {
	return target.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
}

func whole(text string, target reflect.Value) error {
	n, err := strconv.ParseInt(text, 10, target.Type().Bits())
	if err != nil {
		return fmt.Errorf("%s is not an integer, or too large", brief.Quoted(text))
	}
	target.SetInt(n)
	return nil
}

func natural(text string, target reflect.Value) error {
	bits := target.Type().Bits()
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		return fmt.Errorf("%s is not an integer from 0 to %d", brief.Quoted(text), uint64(1)<<bits-1)
	}
	target.SetUint(n)
	return nil
}

func decimal(text string, target reflect.Value) error {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("%s is not a number", brief.Quoted(text))
	}
	target.SetFloat(n)
	return nil
}

func timespan(text string, target reflect.Value) error {
	d, err := config.ParseDuration(text)
	target.SetInt(int64(d))
	return err
}

// AtLeast returns the duration of a flag, or 0 if the flag is missing. A duration below the argument least is an error.
func AtLeast(least time.Duration, flag string, d *time.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if *d < least {
		return 0, exit.Usagef("%s must be at least %s: got %s", flag, brief.Duration(least), brief.Duration(*d))
	}
	return *d, nil
}

// address rejects an empty address. A shell passes an empty address if a variable is unset or a command substitution
// fails. If the default replaced the empty address, the command could use a broker that the user did not intend.
func address(text string, target reflect.Value) error {
	if text == "" {
		return errors.New("the address must not be empty (omit the flag for the default)")
	}
	target.SetString(text)
	return nil
}

// Given sets a condition to the value of its flag, if the flag is given. An empty or zero value is an error.
func Given[T string | int | int64, C ~string | ~int | ~int64](name string, value *T, condition *C) error {
	var zero T
	switch {
	case value == nil:
	case *value == zero:
		return exit.Usagef("--%s must not be empty: got %v", name, quoteEmpty(*value))
	default:
		reflect.ValueOf(condition).Elem().Set(reflect.ValueOf(*value).Convert(reflect.TypeFor[C]()))
	}
	return nil
}

func quoteEmpty(v any) any {
	if v == "" {
		return `""`
	}
	return v
}

// FirstLine returns the first line of a file with a secret.
func FirstLine(path string) (string, error) {
	text, err := os.ReadFile(path)
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSuffix(line, "\r"), err
}
