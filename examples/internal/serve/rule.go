package serve

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/reprisemq/reprise"
)

// Never is how many attempts fail of a message that is never done.
const Never = -1

// asks is how a message asks to fail.
var asks = regexp.MustCompile(`\bfails"?\s*[=:]\s*(-1|\d{1,9})\b`)

// Fails returns how many attempts of a message fail: what its body asks for, else
// what holds for all.
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

// rule is the handler: it counts attempts as the design does, those of other
// programs included.
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
