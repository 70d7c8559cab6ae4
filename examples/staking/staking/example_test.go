package staking_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/examples/staking/staking"
	"github.com/reprisemq/reprise/internal/preset"
)

// ExampleQueue sends, receives, requeues, receives again and deletes a message on an embedded broker.
func ExampleQueue() {
	ctx := context.Background()
	b, err := broker.New(broker.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Shutdown(ctx)

	q, err := staking.Open(ctx, "amqp://guest:guest@embedded/", preset.StakingExpiredQueue, &staking.Config{
		Design: staking.Design{RetryDelay: 50 * time.Millisecond}, // the design uses 5 s
		Client: &reprise.Config{Dial: b.DialContext},              // for RabbitMQ, use its URL and omit Dial
	})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Stop(ctx)

	if err := q.Send(ctx, []byte(`{"schema_version":0,"event_type":4,"staking_tx_hash_hex":"4ab3…","tx_type":"active"}`)); err != nil {
		log.Fatal(err)
	}
	for {
		m, err := q.Receive(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("requeued %d times: %s\n", m.RetryAttempts, m.Body)
		if m.RetryAttempts == 2 {
			fmt.Println("deleted:", q.Delete(m.Receipt))
			fmt.Println("already deleted:", errors.Is(q.Delete(m.Receipt), staking.ErrSettled))
			return
		}
		if err := q.Requeue(m.Receipt, errors.New("the node is behind")); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// requeued 0 times: {"schema_version":0,"event_type":4,"staking_tx_hash_hex":"4ab3…","tx_type":"active"}
	// requeued 1 times: {"schema_version":0,"event_type":4,"staking_tx_hash_hex":"4ab3…","tx_type":"active"}
	// requeued 2 times: {"schema_version":0,"event_type":4,"staking_tx_hash_hex":"4ab3…","tx_type":"active"}
	// deleted: <nil>
	// already deleted: true
}

func ExampleEncode() {
	body, err := staking.Encode(&staking.WithdrawStaking{StakingTxHash: "4ab3", WithdrawTxHash: "c901", BtcHeight: 859_000, WithdrawTx: "0200"})
	fmt.Printf("%s %v\n", body, err)
	// Output:
	// {"schema_version":1,"event_type":3,"staking_tx_hash_hex":"4ab3","withdraw_tx_hash_hex":"c901","withdraw_tx_btc_height":859000,"withdraw_tx_hex":"0200"} <nil>
}

func ExampleDecode() {
	e, err := staking.Decode([]byte(`{"event_type":7,"height":857910,"tvl":1000}`))
	if err != nil {
		log.Fatal(err)
	}
	switch e := e.(type) {
	case *staking.ConfirmedInfoUpdate:
		fmt.Println(e.Kind(), "at", e.Height)
	}
	_, err = staking.Decode([]byte(`{"event_type":9}`))
	fmt.Println(err)
	// Output:
	// confirmed info at 857910
	// staking: event_type must be 1 to 7: got 9
}
