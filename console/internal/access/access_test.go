package access

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestIsRandom(t *testing.T) {
	token, _ := NewToken()
	if !isRandom(token) {
		t.Errorf("%s is taken for made up", token)
	}
	for _, made := range []string{"", "guess", tokenPrefix, strings.TrimPrefix(token, tokenPrefix), token + "A", token[:len(token)-1], token[:len(token)-1] + "+"} {
		if isRandom(made) {
			t.Errorf("%s is taken for random", made)
		}
	}
}

func TestSessionsAreBounded(t *testing.T) {
	now := noon
	clock := func() time.Time { return now }
	s := newSessions(clock)
	first := s.Begin(Token{})
	for range mostSessions {
		s.Begin(Token{})
	}
	if n := s.byID.Len(); n != mostSessions {
		t.Errorf("%d sessions", n)
	}
	if _, ok := s.find(first); ok {
		t.Error("the oldest is still there")
	}
	now = noon.Add(SessionLife)
	s.Begin(Token{})
	if n := s.byID.Len(); n != 1 {
		t.Errorf("%d sessions after all others have ended", n)
	}
}
