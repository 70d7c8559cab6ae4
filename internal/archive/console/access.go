package console

import "github.com/reprisemq/reprise/internal/archive/console/internal/access"

// Role specifies the permissions of a token. Each role includes the permissions of the lower roles. The text form of a
// token's role is view, operate or admin.
type Role = access.Role

// Roles in ascending order.
const (
	Nobody  = access.Nobody  // not logged in
	View    = access.View    // read everything except secrets
	Operate = access.Operate // replay, edit, discard, and undo
	Admin   = access.Admin   // see secrets, import, purge
)

// Token grants a user or a program access to the console.
type Token struct {
	// Name is the name of the owner in the audit log. It has 1 to 64 characters: letters, digits and . _ - @.
	Name string

	// Role is the role of the owner: View, Operate or Admin.
	Role Role

	// Hash is the result of HashToken. The console does not store the token.
	Hash string
}

// NewToken returns a token of 256 random bits for its owner, and the hash for Token.Hash.
func NewToken() (token, hash string) { return access.NewToken() }

// HashToken returns the SHA-256 hash of a token, without salt. This fast hash is safe for tokens from NewToken, but
// not for passwords: anyone with the hash of a password can find the password by guessing.
func HashToken(token string) string { return access.HashToken(token) }

// accessTokens converts the configured tokens to the type of package access.
func accessTokens(tokens []Token) []access.Token {
	all := make([]access.Token, len(tokens))
	for i, t := range tokens {
		all[i] = access.Token(t)
	}
	return all
}
