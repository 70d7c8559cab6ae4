package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
)

const saltSize = 4

// Hash is a salted password hash in RabbitMQ's format: four bytes of salt, and the SHA-256 of the salt and the password
// (https://www.rabbitmq.com/docs/passwords). The zero value does not match any password.
type Hash struct{ saltAndSum []byte }

// HashPassword hashes a password with a new, random salt.
func HashPassword(password string) Hash {
	var salt [saltSize]byte
	_, _ = rand.Read(salt[:]) // never fails
	return Hash{append(salt[:], sum(salt[:], password)...)}
}

// ParseHash parses a base64 hash from a definitions file. For the empty string it returns a hash that does not match
// any password.
func ParseHash(text string) (Hash, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return Hash{}, errHash
	}
	return newHash(b)
}

var errHash = errors.New("password hash is not in the format rabbit_password_hashing_sha256 (36 bytes in base64)")

func newHash(saltAndSum []byte) (Hash, error) {
	if n := len(saltAndSum); n != 0 && n != saltSize+sha256.Size {
		return Hash{}, errHash
	}
	return Hash{saltAndSum}, nil
}

// String returns the hash in the format that ParseHash parses.
func (h Hash) String() string { return base64.StdEncoding.EncodeToString(h.saltAndSum) }

// Matches reports whether h is a hash of password.
func (h Hash) Matches(password string) bool {
	stored := h.saltAndSum
	if len(stored) == 0 {
		stored = make([]byte, saltSize+sha256.Size)
	}
	same := subtle.ConstantTimeCompare(sum(stored[:saltSize], password), stored[saltSize:]) == 1
	return same && len(h.saltAndSum) > 0
}

func sum(salt []byte, password string) []byte {
	s := sha256.Sum256(append(append([]byte(nil), salt...), password...))
	return s[:]
}
