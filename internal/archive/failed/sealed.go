package failed

import (
	"bytes"
	"maps"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/claimcheck"
	"github.com/reprisemq/reprise/encryption"
	"github.com/reprisemq/reprise/topology"
)

// ErrEncrypted is the error of an edit that makes the body unreadable for workers.
const ErrEncrypted uneditable = "the body is encrypted, and belongs to the message id"

// EncryptionKey returns the name of the key with which package encryption has encrypted the body of a message.
func EncryptionKey(headers topology.Table) (name string, encrypted bool) {
	name, encrypted = headers[encryption.Header].(string)
	return name, encrypted
}

// IsReference reports whether package claimcheck has stored the body of c, and c contains a reference to it.
func (c Content) IsReference() bool {
	return claimcheck.IsReference(&reprise.Message{Body: c.Body, Headers: c.Headers})
}

// EditedTo returns the content after an edit of c. If the edit replaces a reference by a body, EditedTo removes the header of
// the reference. It returns ErrEncrypted if a worker could not decrypt the body after the edit.
func (c Content) EditedTo(after Content) (Content, error) {
	_, was := EncryptionKey(c.Headers)
	if _, is := EncryptionKey(after.Headers); was && is && (!bytes.Equal(c.Body, after.Body) || c.Properties.MessageID != after.Properties.MessageID) {
		return after, ErrEncrypted
	}
	if c.IsReference() && !after.IsReference() {
		after.Headers = maps.Clone(after.Headers)
		delete(after.Headers, claimcheck.Header)
	}
	return after, nil
}
