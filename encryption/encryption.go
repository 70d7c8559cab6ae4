package encryption

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/claimcheck"
)

// Header contains the name of the key with which the body is encrypted.
const Header = "x-reprise-encryption-key"

// ErrNotEncrypted is the error of a message without the Header.
var ErrNotEncrypted = errors.New("encryption: message is not encrypted")

// ErrUnauthentic is the error of a message that cannot be decrypted with its key, because its body or its MessageID was
// changed, or because another key has the same name.
var ErrUnauthentic = errors.New("encryption: body or message id was changed, or the key differs")

// Config configures Keys.
type Config struct {
	// Current is the name of the key that encrypts. Names are not secret. Required to encrypt.
	Current string

	// Keys contains the keys by name, with 32 random bytes each. All of them decrypt. One key may encrypt at most 4 billion
	// messages, because the nonces are random. Required.
	Keys map[string][]byte

	// AcceptPlaintext makes the middleware pass messages without the Header to the handler, for the time of the
	// introduction. Default: false, so that such messages are parked with ErrNotEncrypted.
	AcceptPlaintext bool
}

// Keys encrypts and decrypts bodies. It is safe for concurrent use.
type Keys struct {
	current string
	aeads   map[string]cipher.AEAD
	plain   bool
}

// New returns Keys.
func New(c Config) (*Keys, error) {
	if len(c.Keys) == 0 {
		return nil, errors.New("encryption: Config.Keys must not be empty")
	}
	if _, found := c.Keys[c.Current]; !found && c.Current != "" {
		return nil, fmt.Errorf("encryption: Config.Current must be the name of a key: got %q (the keys are %q)", c.Current, slices.Sorted(maps.Keys(c.Keys)))
	}
	k := &Keys{current: c.Current, aeads: make(map[string]cipher.AEAD, len(c.Keys)), plain: c.AcceptPlaintext}
	for name, key := range c.Keys {
		switch {
		case name == "":
			return nil, errors.New("encryption: Config.Keys must not contain a key without a name")
		case len(key) != 32:
			return nil, fmt.Errorf("encryption: Config.Keys[%q] must have 32 bytes: got %d (decode a key in hexadecimal digits or base64)", name, len(key))
		case bytes.Count(key, []byte{0}) == len(key):
			return nil, fmt.Errorf("encryption: Config.Keys[%q] must be random: got 32 zero bytes", name)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		if k.aeads[name], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// version is the first byte of an encrypted body. It begins neither JSON nor a message of Protocol Buffers (7 is an undefined
// wire type), so that a worker without the middleware parks the message.
const version = 0x0f

// BeforePublish encrypts the body of m with the Current key. It is intended for reprise.Config.BeforePublish, which covers all
// methods of publishing, and for outbox.Config.BeforeInsert. It sets the MessageID if it is empty. It does not change a
// message that is already encrypted with one of the keys, and returns an error for a message with the Header that it cannot
// decrypt, or whose body package claimcheck has stored without encryption. A message that an outbox publishes periodically has
// a new MessageID each time, and must be encrypted by BeforePublish alone.
func (k *Keys) BeforePublish(_ context.Context, m *reprise.Message) error {
	if _, found := m.Headers[Header]; found {
		if _, err := k.open(m); err != nil && !claimcheck.IsReference(m) { // the stored body is encrypted
			return fmt.Errorf("%w: cannot publish a message with the header %s: %w", reprise.ErrInvalidMessage, Header, err)
		}
		return nil
	}
	if claimcheck.IsReference(m) {
		return errors.New("encryption: body is in a store of package claimcheck, and is not encrypted (call Keys.BeforePublish before Check.BeforePublish)")
	}
	if k.current == "" {
		return errors.New("encryption: Config.Current must not be empty (it is the name of the key that encrypts)")
	}
	if m.MessageID == "" {
		m.MessageID = rand.Text()
	}
	if m.Headers = maps.Clone(m.Headers); m.Headers == nil {
		m.Headers = make(map[string]any)
	}
	m.Headers[Header] = k.current
	m.Body = k.aeads[k.current].Seal([]byte{version}, nil, m.Body, bound(m.MessageID))
	return nil
}

// bound returns the data that is authenticated in addition to a body.
func bound(messageID string) []byte { return []byte("reprise\x00" + messageID) }

// unknownKeyError is the error of a message whose key is missing.
type unknownKeyError string

func (e unknownKeyError) Error() string {
	return fmt.Sprintf("encryption: key %q not found (add it to Config.Keys)", string(e))
}

// errNotRestored is the error of a message whose encrypted body is in a store.
var errNotRestored = errors.New("encryption: body is in a store of package claimcheck (Check.Middleware must be before Keys.Middleware)")

// open returns the decrypted body of m.
func (k *Keys) open(m *reprise.Message) ([]byte, error) {
	header, found := m.Headers[Header]
	if !found {
		return nil, ErrNotEncrypted
	}
	name, isName := header.(string)
	aead := k.aeads[name]
	switch {
	case !isName:
		return nil, fmt.Errorf("encryption: header %s must be a string: got %T", Header, header)
	case claimcheck.IsReference(m):
		return nil, errNotRestored
	case aead == nil:
		return nil, unknownKeyError(name)
	case len(m.Body) == 0 || m.Body[0] != version:
		return nil, ErrUnauthentic
	}
	body, err := aead.Open(nil, nil, m.Body[1:], bound(m.MessageID))
	if err != nil {
		return nil, ErrUnauthentic // err has no further information
	}
	return body, nil
}

// Middleware decrypts the body of a message. The handler receives a copy of the message without the Header. Retries and parked
// messages remain encrypted.
//
// A message with an unknown key fails and is retried by the Policy, because the key may be deployed later. So does a message
// whose body is in a store of package claimcheck, because the order of the middleware is wrong. A message that was changed is
// parked with ErrUnauthentic, and a message that is not encrypted with ErrNotEncrypted, unless AcceptPlaintext is set.
func (k *Keys) Middleware(next reprise.Handler) reprise.Handler {
	return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
		body, err := k.open(&m.Message)
		var unknown unknownKeyError
		switch {
		case errors.Is(err, ErrNotEncrypted) && k.plain:
			return next.Handle(ctx, m)
		case errors.As(err, &unknown), errors.Is(err, errNotRestored):
			return err
		case err != nil:
			return reprise.Park(err)
		}
		decrypted := *m
		decrypted.Body, decrypted.Headers = body, maps.Clone(m.Headers)
		delete(decrypted.Headers, Header)
		return next.Handle(ctx, &decrypted)
	})
}
