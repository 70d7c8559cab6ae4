package serve

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/reprisemq/reprise"
)

// Never as the number of failing attempts means that all attempts fail.
const Never = -1

// asks matches the number of failing attempts in the body of a message.
var asks = regexp.MustCompile(`\bfails"?\s*[=:]\s*(-1|\d{1,9})\b`)

// Fails returns the number of failing attempts that a body specifies, or fallback if the body does not specify a
// number.
func Fails(body []byte, fallback int) int {
	found := asks.FindSubmatch(body)
	if found == nil {
		return fallback
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		return fallback
	}
	return n
}

// rule returns the handler of the service. As in the design, attempts by other programs also count.
func rule(all int) reprise.HandlerFunc {
	return func(_ context.Context, m *reprise.Delivery) error {
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
