// Package testkit contains the shared test helpers. They provide brokers, wait for conditions, create unique names, and
// cut a connection at a given byte.
//
//	func TestRetry(t *testing.T) {
//		testkit.Each(t, func(t *testing.T, b testkit.Target) {
//			queue := testkit.Name(t, "work")
//			proxy := testkit.NewProxy(t, b.URL)
//			cut := proxy.CutBeforeFrame(testkit.ToClient, 7)
//			…
//			<-cut
//			testkit.Eventually(t, 10*time.Second, func() bool { return depth(queue) == 1 })
//		})
//	}
//
// A test that uses only the embedded broker does not need this package. Such a test runs in a testing/synctest bubble, on
// an in-memory connection.
package testkit

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Name returns a unique name for a queue or an exchange. It differs between tests and between runs. The name contains
// the name of the test, which identifies the origin of an object on a broker.
func Name(t testing.TB, prefix string) string {
	t.Helper()
	var random [4]byte
	rand.Read(random[:])
	test := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_.", r):
			return r
		}
		return '-'
	}, t.Name())
	// A name on the wire has at most 255 bytes, and the test may append to it.
	test = test[:min(len(test), 150)]
	return prefix + "." + test + "." + hex.EncodeToString(random[:])
}

// Eventually waits until condition holds. condition is a func() bool, or a func() error whose error describes the unmet
// condition. If the timeout expires first, the test fails immediately.
//
// Eventually calls the condition repeatedly on the goroutine of the test. The condition should not block. In a synctest
// bubble the wait needs no real time.
func Eventually[C func() bool | func() error](t testing.TB, within time.Duration, condition C) {
	t.Helper()
	const longest = 50 * time.Millisecond
	deadline := time.Now().Add(within)
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		holds, missing := evaluate(condition)
		if holds {
			return
		}
		left := time.Until(deadline)
		if left <= 0 {
			t.Fatalf("condition not met after %v%s", within, missing)
		}
		time.Sleep(min(pause, left))
	}
}

func evaluate(condition any) (holds bool, missing string) {
	switch condition := condition.(type) {
	case func() bool:
		return condition(), ""
	case func() error:
		if err := condition(); err != nil {
			return false, ": " + err.Error()
		}
	}
	return true, ""
}

// DeleteQueues deletes queues at the end of the test.
func DeleteQueues(t testing.TB, url string, names ...string) {
	t.Helper()
	t.Cleanup(func() {
		conn, err := amqp.Dial(url)
		if err != nil {
			t.Errorf("cannot delete queues: %v", err)
			return
		}
		defer conn.Close()
		ch, err := conn.Channel()
		for _, name := range names {
			if err == nil {
				_, err = ch.QueueDelete(name, false, false, false)
			}
		}
		if err != nil {
			t.Errorf("cannot delete queues: %v", err)
		}
	})
}
