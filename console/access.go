package console

import "github.com/reprisemq/reprise/console/internal/access"

// Role specifies the permissions of a token. Each role includes those before it. As text
// it is view, operate or admin.
type Role = access.Role

// The roles.
const (
	Nobody  = access.Nobody  // not logged in
	View    = access.View    // read everything but secrets
	Operate = access.Operate // replay, edit, discard, and undo
	Admin   = access.Admin   // see secrets, import, purge
)

// Token lets somebody in.
type Token struct {
	// Name is who has it, as the audit log says: letters, digits and . _ - @, at most
	// 64 of them.
	Name string

	// Role is what they may do: View, Operate or Admin.
	Role Role

	// Hash is what HashToken made of the token, which itself is kept nowhere.
	Hash string
}

// NewToken returns a token of 256 random bits, to be given to who is to have it, and
// its hash for Token.Hash.
func NewToken() (token, hash string) { return access.NewToken() }

// HashToken returns the hash of a token. The hash is fast and has no salt. That is safe
// for the tokens of NewToken, and not for a password: whoever has its hash can guess it.
func HashToken(token string) string { return access.HashToken(token) }

// accessTokens returns the configured tokens as package access takes them.
func accessTokens(tokens []Token) []access.Token {
	all := make([]access.Token, len(tokens))
	for i, t := range tokens {
		all[i] = access.Token(t)
	}
	return all
}
