package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
)

// Token grants access to a user or a program.
type Token struct {
	Name string // of the owner, in the audit log: 1 to 64 letters, digits and . _ - @
	Role Role   // View, Operate or Admin
	Hash string // the result of HashToken; the console does not store the token
}

const (
	tokenPrefix  = "reprise_"
	tokenBytes   = 32
	hashPrefix   = "sha256:"
	maxTokenName = 64
)

// NewToken returns a token of 256 random bits and its hash for Token.Hash.
func NewToken() (token, hash string) {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	return token, HashToken(token)
}

// HashToken returns the SHA-256 hash of a token, without salt. This fast hash is safe only for the random tokens from
// NewToken. An attacker who knows the hash of any other token can find the token by guessing. For such a token, only
// the wait after wrong tokens slows down an attacker who does not know the hash, and the wait also affects the owner if
// both have the same address.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

func ValidateTokens(tokens []Token) error {
	var errs []error
	names, hashes := map[string]bool{}, map[string]bool{}
	for i, t := range tokens {
		at := fmt.Sprintf("console: Config.Tokens[%d]", i)
		if t.Name == "" || len(t.Name) > maxTokenName || strings.Trim(t.Name, tokenNameBytes) != "" {
			errs = append(errs, fmt.Errorf("%s.Name must be 1 to %d letters, digits and . _ - @: got %q", at, maxTokenName, t.Name))
		}
		if names[t.Name] {
			errs = append(errs, fmt.Errorf("%s.Name must be unique: got %q twice", at, t.Name))
		}
		if t.Role < View || t.Role > Admin {
			errs = append(errs, fmt.Errorf("%s.Role must be View, Operate or Admin: got %s", at, t.Role))
		}
		sum, err := hex.DecodeString(strings.TrimPrefix(t.Hash, hashPrefix))
		if err != nil || len(sum) != sha256.Size || !strings.HasPrefix(t.Hash, hashPrefix) {
			errs = append(errs, fmt.Errorf("%s.Hash must be a hash from NewToken or HashToken", at))
		} else if hashes[string(sum)] {
			errs = append(errs, fmt.Errorf("%s.Hash must be unique (create a token for each user)", at))
		}
		names[t.Name], hashes[string(sum)] = true, true
	}
	return errors.Join(errs...)
}

const tokenNameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@"

// check returns the token with this secret. After wrong tokens, an address must wait. Tokens from NewToken are exempt:
// their 256 random bits resist guessing at any rate, and behind a proxy, where all users have the same address, an
// attacker could otherwise lock out the owner. All other tokens are refused during the wait, even valid tokens, because
// only the wait protects them.
func (g *Guard) check(r *http.Request, secret string) (Token, error) {
	found := g.tokenOf(HashToken(secret))
	if found != nil && isRandom(secret) {
		return *found, nil
	}
	if wait := g.Wrong.Try(r.RemoteAddr, "", found != nil); wait > 0 {
		return Token{}, tooOften(wait)
	}
	if found != nil {
		return *found, nil
	}
	g.logger.Warn("login refused", "peer", r.RemoteAddr)
	return Token{}, errWrongToken
}

// tokenOf returns the token with this hash, or nil. It compares all tokens, so that the duration does not reveal a match.
func (g *Guard) tokenOf(hash string) (found *Token) {
	for _, t := range *g.tokens.Load() {
		if subtle.ConstantTimeCompare([]byte(strings.ToLower(t.Hash)), []byte(strings.ToLower(hash))) == 1 {
			found = &t
		}
	}
	return found
}

func tooOften(wait time.Duration) *fault.Failure {
	seconds := int((wait + time.Second - 1) / time.Second)
	return &fault.Failure{
		Status:     http.StatusTooManyRequests,
		RetryAfter: seconds,
		Text:       "too many wrong tokens from your address",
		Advice:     fmt.Sprintf("try again in %d s", seconds),
	}
}

// isRandom reports whether a secret has the form of a token from NewToken.
func isRandom(secret string) bool {
	bits, ok := strings.CutPrefix(secret, tokenPrefix)
	b, err := base64.RawURLEncoding.DecodeString(bits)
	return ok && err == nil && len(b) == tokenBytes
}
