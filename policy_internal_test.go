package reprise

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// The number of retries in a message is the exact number of attempts, because existing programs depend on it. A rule can
// reduce the number.
func TestTheMessagesOwnNumberCounts(t *testing.T) {
	gone := errors.New("gone")
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		ruled := random.IntN(9)
		p := Policy{
			MaxAttempts: random.IntN(9),
			Rules:       []Rule{{Match: Is(gone), MaxAttempts: ruled}},
		}
		attempt, left := 1+random.IntN(8), random.IntN(9)
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
	}
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
