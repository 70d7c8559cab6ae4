package reprise

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// Existing programs depend on the number of retries that a message specifies, so the number is exact. Only a rule can
// reduce it.
func TestMessageOverridesMaxAttempts(t *testing.T) {
	gone := errors.New("gone")
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		ruled := random.IntN(9)
		p := Policy{
			MaxAttempts: random.IntN(9),
			Rules:       []Rule{{Match: MatchIs(gone), MaxAttempts: ruled}},
		}
		attempt, left := 1+random.IntN(8), random.IntN(9)
		own := p.withMaxAttempts(attempt + left)
		if got := own.Decide(errors.New("any"), attempt, 0).Retry; got != (left > 0) {
			t.Fatalf("with %d retries left: got retry %t, want %t", left, got, left > 0)
		}
		want := left > 0 && (ruled == 0 || attempt < ruled)
		if got := own.Decide(gone, attempt, 0).Retry; got != want {
			t.Fatalf("with %d retries left, after attempt %d, with MaxAttempts %d of a rule: got retry %t, want %t", left, attempt, ruled, got, want)
		}
		if p.Rules[0].MaxAttempts != ruled {
			t.Fatal("policy was changed")
		}
	}
}

func TestPolicyMaxAttempts(t *testing.T) {
	for want, p := range map[int]Policy{
		DefaultMaxAttempts: {Rules: []Rule{{MaxAttempts: 3}}},
		50:                 {MaxAttempts: 3, Rules: []Rule{{MaxAttempts: 50}, {}}},
	} {
		if got := p.maxAttempts(); got != want {
			t.Errorf("highest number of attempts of %+v: got %d, want %d", p, got, want)
		}
	}
}
