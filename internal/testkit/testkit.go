// Package testkit is what the project's tests share: brokers to run against, and
// means to wait, to name things, and to break a connection at a chosen byte.
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
// A test that only the embedded broker can pass needs none of this: it runs in a
// testing/synctest bubble, on an in-memory connection.
package testkit

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
	"time"
)

// Name returns a name for a queue or an exchange that no other test has, and no
// other run of this one on the same broker. Whoever meets it on a broker sees
// from it where it comes from.
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
	// A name on the wire has 255 bytes at most, of which a test may wish to append some.
	test = test[:min(len(test), 150)]
	return prefix + "." + test + "." + hex.EncodeToString(random[:])
}

// Eventually waits until condition holds, which is a func() bool, or a func()
// error that says what is still missing. The test fails and ends when that has
// not come true within the time given.
//
// The condition is asked again and again, from the test's own goroutine, and
// should not block. In a synctest bubble all of this takes no time.
func Eventually[C func() bool | func() error](t testing.TB, within time.Duration, condition C) {
	t.Helper()
	const longest = 50 * time.Millisecond
	deadline := time.Now().Add(within)
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		holds, missing := ask(condition)
		if holds {
			return
		}
		left := time.Until(deadline)
		if left <= 0 {
			t.Fatalf("still not so after %v%s", within, missing)
		}
		time.Sleep(min(pause, left))
	}
}

func ask(condition any) (holds bool, missing string) {
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
