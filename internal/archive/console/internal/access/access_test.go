package access

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestIsRandomAcceptsOnlyNewTokens(t *testing.T) {
	token, _ := NewToken()
	if !isRandom(token) {
		t.Errorf("isRandom(%s): got false, want true", token)
	}
	for _, made := range []string{"", "guess", tokenPrefix, strings.TrimPrefix(token, tokenPrefix), token + "A", token[:len(token)-1], token[:len(token)-1] + "+"} {
		if isRandom(made) {
			t.Errorf("isRandom(%s): got true, want false", made)
		}
	}
}

func TestSessionsReplaceOldest(t *testing.T) {
	now := noon
	clock := func() time.Time { return now }
	s := newSessions(clock)
	first := s.Begin(Token{})
	for range mostSessions {
		s.Begin(Token{})
	}
	if n := s.byID.Len(); n != mostSessions {
		t.Errorf("got %d sessions, want %d", n, mostSessions)
	}
	if _, ok := s.find(first); ok {
		t.Error("oldest session still exists")
	}
	now = noon.Add(SessionLife)
	s.Begin(Token{})
	if n := s.byID.Len(); n != 1 {
		t.Errorf("got %d sessions after all others have expired, want 1", n)
	}
}
