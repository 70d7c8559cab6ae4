package encryption_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/encryption"
)

// BeforePublish is a field of reprise.Config, and Middleware of WorkerConfig. This example calls them without a broker.
func ExampleKeys() {
	key := bytes.Repeat([]byte{1}, 32) // of crypto/rand, from the store of your secrets
	keys, err := encryption.New(encryption.Config{Current: "2026-11", Keys: map[string][]byte{"2026-11": key}})
	if err != nil {
		fmt.Println(err)
		return
	}
	m := &reprise.Message{RoutingKey: "orders", MessageID: "order-17", Body: []byte("card 4111 1111 1111 1111")}
	if err := keys.BeforePublish(context.Background(), m); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("published with the key", m.Headers[encryption.Header])

	handler := keys.Middleware(reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
		fmt.Printf("handled: %s\n", m.Body)
		return nil
	}))
	fmt.Println(handler.Handle(context.Background(), &reprise.Delivery{Message: *m}))

	m.MessageID = "order-18" // a copied body
	fmt.Println(handler.Handle(context.Background(), &reprise.Delivery{Message: *m}))
	// Output:
	// published with the key 2026-11
	// handled: card 4111 1111 1111 1111
	// <nil>
	// encryption: body or message id was changed, or the key differs
}
