package disk_test

import (
	"context"
	"fmt"
	"net"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
)

// This broker has a data directory. Clients in any language can use it, and its messages survive a restart.
func Example() {
	dir, err := os.MkdirTemp("", "broker")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	for range 2 {
		b, err := broker.New(broker.Config{Store: disk.Dir(dir + "/data")})
		if err != nil {
			panic(err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0") // 5672 is the standard port
		if err != nil {
			panic(err)
		}
		go b.Serve(listener)
		fmt.Println(b.Queues())
		if err := declare("amqp://guest:guest@" + listener.Addr().String()); err != nil {
			panic(err)
		}
		if err := b.Shutdown(context.Background()); err != nil {
			panic(err)
		}
	}
	// Output:
	// []
	// [{/ orders 0 0 0}]
}

func declare(url string) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	_, err = ch.QueueDeclare("orders", true, false, false, false, nil)
	return err
}
