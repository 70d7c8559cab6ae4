// Package published converts the result of publishing a message to a word, which is the same in metrics and traces.
package published

import (
	"errors"

	"github.com/reprisemq/reprise"
)

// OK is the result of a message that the broker has stored.
const OK = "ok"

// results are the words for errors. The first match applies. Errors after which the broker may have stored the message come
// first.
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

// Results returns all words.
func Results() []string {
	words := []string{OK}
	for _, r := range results {
		words = append(words, r.word)
	}
	return words
}

// Result returns the word for the error that Publish returned.
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
