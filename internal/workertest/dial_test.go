package workertest

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestDialReturnsPermanentErrorsImmediately(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		with := func(change func(u *url.URL)) string {
			u, err := url.Parse(b.URL)
			if err != nil {
				t.Fatal(err)
			}
			change(u)
			return u.String()
		}
		for _, tc := range []struct{ name, url, want string }{
			{"scheme", "http://user:s3cret@localhost/", "cannot use this broker URL (it does not begin with amqp:// or amqps://); use amqp://user:password@host:5672/vhost"},
			{"port", "amqp://user:s3cret@localhost:port/", "cannot use this broker URL"},
			{"escape", "amqp://user:s3cret%zz@localhost/", "cannot use this broker URL"},
			{"password", with(func(u *url.URL) { u.User = url.UserPassword("guest", "s3cret") }), `the broker refused user "guest"; check user name and password`},
			{"virtual host", with(func(u *url.URL) { u.Path = "/no-such-vhost" }), `denied user "guest" access to virtual host "no-such-vhost"; check that it exists`},
		} {
			t.Run(tc.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				c, err := reprise.Dial(ctx, tc.url, nil)
				if err == nil {
					_ = c.Close(ctx)
				}
				if _, ok := errors.AsType[*reprise.ConnectError](err); !ok || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				for e := err; e != nil; e = errors.Unwrap(e) {
					if strings.Contains(e.Error(), "s3cret") {
						t.Errorf("error must not contain the password: got %v", e)
					}
				}
			})
		}
	})
}

// The error explains RabbitMQ's rule for the user guest only if the rule may be the cause.
func TestDialExplainsRejectionOfRemoteGuest(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		u, err := url.Parse(b.URL)
		if err != nil {
			t.Fatal(err)
		}
		here := u.Host
		u.User = url.UserPassword("guest", "wrong")
		for host, want := range map[string]bool{here: false, "broker.example:5672": true} {
			u.Host = host
			_, err := reprise.Dial(t.Context(), u.String(), &reprise.Config{
				Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, here)
				},
			})
			if err == nil || strings.Contains(err.Error(), "accepts user guest only from localhost") != want {
				t.Errorf("host %s: got %v, want an error that explains the user guest: %t", host, err, want)
			}
		}
	})
}

var errUnreachable = errors.New("host unreachable")

func TestDialTriesUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	tries := 0
	_, err := reprise.Dial(ctx, "amqp://guest:s3cret@broker.example/", &reprise.Config{
		Reconnect: backoff.Fixed(time.Millisecond),
		Dial: func(_ context.Context, network, addr string) (net.Conn, error) {
			if network != "tcp" || addr != "broker.example:5672" {
				t.Errorf("dialed address: got %s %s, want tcp broker.example:5672", network, addr)
			}
			if tries++; tries == 3 {
				cancel(reason)
			}
			return nil, errUnreachable
		},
	})
	if !errors.Is(err, reason) || !strings.Contains(err.Error(), "host unreachable") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %[2]v after %[1]d attempts, want the reason with host unreachable and without the password", tries, err)
	}
}

// If ctx is canceled during an attempt, for example while RabbitMQ delays the rejection of a password, the error of Dial
// contains the error of the previous attempt.
func TestCanceledDialReturnsLastError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	_, err := reprise.Dial(ctx, "amqp://broker.example/", &reprise.Config{
		Reconnect: backoff.Fixed(time.Millisecond),
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if tries++; tries == 1 {
				return nil, errUnreachable
			}
			cancel()
			return nil, ctx.Err()
		},
	})
	const want = "reprise: cannot reach broker.example:5672: context canceled (last attempt: broker.example:5672: host unreachable)"
	if !errors.Is(err, context.Canceled) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestDialStopsDuringHandshake(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := reprise.Dial(ctx, "amqp://broker.example/", &reprise.Config{
		Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				_, _ = server.Read(make([]byte, 8)) // the protocol header, to which this server does not respond
				cancel()
				_, _ = server.Read(make([]byte, 1)) // waits until the client disconnects
			}()
			return client, nil
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestDialValidatesItsConfig(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]reprise.Config{
		"reprise: Config.Heartbeat must be at least 1s: got 1ms (0 means 10s)":                                                                              {Heartbeat: time.Millisecond},
		"reprise: Config.ConfirmTimeout must not be negative: got -1ns (0 means 30s)":                                                                       {ConfirmTimeout: -1},
		"backoff: List must not be empty (List{time.Minute} always waits 1m)":                                                                               {Reconnect: backoff.List{}},
		"reprise: Config.Reconnect must reach a delay of at least 1ms: got 0s (shorter delays keep the process and the broker busy; nil means the default)": {Reconnect: backoff.Fixed(0)},
	} {
		if _, err := reprise.Dial(t.Context(), "amqp://localhost/", &c); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, b := range []backoff.Backoff{
		nil, backoff.Fixed(time.Millisecond),
		backoff.List{0, time.Second},
		backoff.Full(backoff.Fixed(time.Second)),
		backoff.Exponential{Initial: time.Millisecond, Max: time.Second},
	} {
		if err := (&reprise.Config{Reconnect: b}).Validate(); err != nil {
			t.Errorf("backoff %v: %v", b, err)
		}
	}
}

// The AMQP client cannot distinguish a connection that is lost during the handshake from a rejected password. Therefore
// Dial tries again before it reports a rejected password.
func TestDialRetriesBrokenHandshake(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		proxy := testkit.NewProxy(t, b.URL)
		lost := proxy.CutBeforeFrame(testkit.ToClient, 2) // connection.tune, the response to the password
		dial(t, proxy.URL())
		<-lost
	})
}

// Config.Heartbeat takes precedence over the URL.
func TestHeartbeatPrecedence(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		parameter string
		set, want time.Duration
	}{
		{"", 0, reprise.DefaultHeartbeat},
		{"", 3 * time.Second, 3 * time.Second},
		{"?heartbeat=7", 0, 7 * time.Second},
		{"?heartbeat=7", 3 * time.Second, 3 * time.Second},
		{"?connection_timeout=5000&heartbeat=7&channel_max=100", 3 * time.Second, 3 * time.Second},
	} {
		t.Run(tc.parameter+" "+tc.set.String(), func(t *testing.T) {
			b, err := broker.New(broker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Shutdown(context.Background()) })
			_, m := dialWithGate(t, "amqp://guest:guest@memory/%2F"+tc.parameter, func(c *reprise.Config) { c.Dial, c.Heartbeat = b.DialContext, tc.set })
			if got := m.heartbeat(); got != tc.want {
				t.Errorf("heartbeat: got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestDialWithTooFewChannels(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		client, err := reprise.Dial(t.Context(), b.URL+"?channel_max=3", nil)
		if err == nil {
			_ = client.Close(t.Context())
		}
		if e, ok := errors.AsType[*reprise.ConnectError](err); !ok || !strings.Contains(e.Reason, "raise channel_max") {
			t.Errorf("got %v, want ConnectError", err)
		}
	})
}
