package broker_test

import (
	"context"
	"fmt"
	"net"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// This example connects the AMQP client to an in-memory broker without a socket.
func Example() {
	b, err := broker.New(broker.Config{})
	if err != nil {
		panic(err)
	}
	defer b.Shutdown(context.Background())

	conn, err := amqp.DialConfig("amqp://guest:guest@broker/", amqp.Config{
		Dial: func(network, addr string) (net.Conn, error) {
			return b.DialContext(context.Background(), network, addr)
		},
	})
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		panic(err)
	}
	if _, err := ch.QueueDeclare("orders", false, false, false, false, nil); err != nil {
		panic(err)
	}
	if err := ch.Publish("", "orders", false, false, amqp.Publishing{Body: []byte("two chairs")}); err != nil {
		panic(err)
	}
	m, found, err := ch.Get("orders", true)
	fmt.Println(string(m.Body), found, err)
	// Output: two chairs true <nil>
}
