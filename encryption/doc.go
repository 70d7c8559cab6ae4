// Package encryption encrypts the bodies of messages with AES-256-GCM, so that the broker, the failed queues, the archive
// and backups do not contain readable bodies.
//
// [Keys] encrypts bodies before they are published, and a middleware decrypts them before the handler:
//
//	keys, err := encryption.New(encryption.Config{Current: "2026-11", Keys: map[string][]byte{"2026-11": key}})
//	client, err := reprise.Dial(ctx, url, &reprise.Config{BeforePublish: keys.BeforePublish})
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue: "orders", Handler: handler, Middleware: []reprise.Middleware{keys.Middleware},
//	})
//
// To change the key, first add the new key to Keys in all workers, then make it Current in all publishers. Remove the old
// key when no queue, outbox or archive contains messages of it.
//
// The body can only be decrypted with the MessageID of its message. A party that can publish therefore cannot repeat a body
// under a new ID, for example to bypass package idempotent, but can repeat a complete message.
// Everything except the body is neither encrypted nor protected from changes: the exchange, the routing key, the
// properties, the headers, and the errors that a worker records when the handler fails. Errors should not contain secrets.
//
// Encrypted bodies are never equal, so reprise.ContentKey does not find equal messages.
//
// With package claimcheck, encrypt first, so that the store contains encrypted bodies:
//
//	BeforePublish: func(ctx context.Context, m *reprise.Message) error {
//		if err := keys.BeforePublish(ctx, m); err != nil {
//			return err
//		}
//		return check.BeforePublish(ctx, m)
//	}
//	Middleware: []reprise.Middleware{check.Middleware, keys.Middleware}
//
// The package imports packages reprise and claimcheck.
package encryption
