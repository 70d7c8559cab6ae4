package reprise

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// A message that brings a number of retries is tried that often, and no more:
// programs that are there already rely on it. A rule can make it less.
func TestTheMessagesOwnNumberCounts(t *testing.T) {
	gone := errors.New("gone")
	rapid.Check(t, func(t *rapid.T) {
		ruled := rapid.IntRange(0, 8).Draw(t, "rule")
		p := Policy{
			MaxAttempts: rapid.IntRange(0, 8).Draw(t, "policy"),
			Rules:       []Rule{{Match: Is(gone), MaxAttempts: ruled}},
		}
		attempt, left := rapid.IntRange(1, 8).Draw(t, "attempt"), rapid.IntRange(0, 8).Draw(t, "left")
		own := p.atMost(attempt + left)
		if got := own.Decide(errors.New("any"), attempt, 0).Retry; got != (left > 0) {
			t.Fatalf("with %d retries left: retry %t", left, got)
		}
		want := left > 0 && (ruled == 0 || attempt < ruled)
		if got := own.Decide(gone, attempt, 0).Retry; got != want {
			t.Fatalf("with %d retries left, after attempt %d of the %d of a rule: retry %t", left, attempt, ruled, got)
		}
		if p.Rules[0].MaxAttempts != ruled {
			t.Fatal("the policy itself was changed")
		}
	})
}

func TestMostAttempts(t *testing.T) {
	for want, p := range map[int]Policy{
		DefaultMaxAttempts: {Rules: []Rule{{MaxAttempts: 3}}},
		50:                 {MaxAttempts: 3, Rules: []Rule{{MaxAttempts: 50}, {}}},
	} {
		if got := p.most(); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}
