package serve

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/reprisemq/reprise"
)

// Never is the number of failing attempts for a message that always fails.
const Never = -1

// asks matches the number of failing attempts in the body of a message.
var asks = regexp.MustCompile(`\bfails"?\s*[=:]\s*(-1|\d{1,9})\b`)

// Fails returns the number of failing attempts that a body specifies, or all if it does not specify a number.
func Fails(body []byte, all int) int {
	found := asks.FindSubmatch(body)
	if found == nil {
		return all
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		return all
	}
	return n
}

// rule returns the handler of the service. The number of an attempt includes earlier attempts by other programs, as in
// the design.
func rule(all int) reprise.HandlerFunc {
	return func(_ context.Context, m *reprise.Message) error {
		n := Fails(m.Body, all)
		switch {
		case n == Never:
			return fmt.Errorf("attempt %d fails, like all attempts", m.Attempt)
		case m.Attempt <= n:
			return fmt.Errorf("attempt %d fails, like the first %d", m.Attempt, n)
		}
		return nil
	}
}
