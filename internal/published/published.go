// Package published puts what became of a published message into a word, the
// same for metrics and traces.
package published

import (
	"errors"

	"github.com/reprisemq/reprise"
)

// OK is the result of a message that the broker has.
const OK = "ok"

// results are the words for errors. The first that matches counts: what may have
// been stored comes before what is known not to be.
var results = []struct {
	word string
	is   func(error) bool
}{
	{"unconfirmed", is(reprise.ErrUnconfirmed)},
	{"nacked", is(reprise.ErrNacked)},
	{"unroutable", as[*reprise.UnroutableError]},
	{"refused", as[*reprise.RefusedError]},
	{"too_large", as[*reprise.TooLargeError]},
	{"blocked", is(reprise.ErrBlocked)},
	{"stalled", is(reprise.ErrStalled)},
	{"disconnected", is(reprise.ErrDisconnected)},
	{"invalid", is(reprise.ErrInvalidMessage)},
	{"other", func(error) bool { return true }},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Results are all words there are.
func Results() []string {
	words := []string{OK}
	for _, r := range results {
		words = append(words, r.word)
	}
	return words
}

// Result is the word for what a Publish returned.
func Result(err error) string {
	if err == nil {
		return OK
	}
	for _, r := range results {
		if r.is(err) {
			return r.word
		}
	}
	return ""
}
