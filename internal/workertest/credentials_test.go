package workertest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

// After the password or the user has been rotated, the client connects with the new one.
func TestClientReconnectsWithRotatedCredentials(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		first, second := testkit.Name(t, "user"), testkit.Name(t, "user-2")
		for _, c := range []struct {
			name   string
			rotate func(t *testing.T, file string) // changes what the broker and the program know
		}{
			{"password", func(t *testing.T, file string) {
				putUser(t, api, first, "new")
				writeFile(t, file, first+"\nnew")
			}},
			{"user", func(t *testing.T, file string) {
				putUser(t, api, second, "other")
				writeFile(t, file, second+"\nother")
			}},
		} {
			for _, fromFile := range []bool{true, false} {
				if fromFile && c.name == "user" {
					continue // a password file has no user
				}
				name := c.name + " from a function"
				if fromFile {
					name = c.name + " from a file"
				}
				t.Run(name, func(t *testing.T) {
					putUser(t, api, first, "old")
					credentials := filepath.Join(t.TempDir(), "credentials")
					password := filepath.Join(t.TempDir(), "password")
					writeFile(t, credentials, first+"\nold")
					writeFile(t, password, "old\n")
					u, err := url.Parse(b.URL)
					if err != nil {
						t.Fatal(err)
					}
					u.User = url.User(first)
					sockets := sockets{via: new(net.Dialer).DialContext}
					cfg := reprise.Config{Dial: sockets.dial}
					if fromFile {
						u.RawQuery = url.Values{"passwordfile": {password}}.Encode()
					} else {
						cfg.Credentials = func(context.Context) (user, password string, err error) {
							content, err := os.ReadFile(credentials)
							user, password, _ = strings.Cut(string(content), "\n")
							return user, password, err
						}
					}
					client, err := reprise.Dial(t.Context(), u.String(), &cfg)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) })
					queue := newRaw(t, b.URL).declareQueue()
					publish := func() error { return client.Publish(t.Context(), &reprise.Message{RoutingKey: queue}) }
					if err := publish(); err != nil {
						t.Fatal(err)
					}
					c.rotate(t, credentials)
					writeFile(t, password, "new\n")
					sockets.close()
					testkit.Eventually(t, timeout, publish) // the first may be lost with its connection
				})
			}
		}
	})
}

// A password file that is missing or empty is an error that names it, as is a URL with two passwords.
func TestDialReportsInvalidPasswordFile(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	writeFile(t, empty, "\n")
	for _, c := range []struct{ url, want string }{
		{"amqp://user@127.0.0.1/?passwordfile=" + empty + "x", "no such file"},
		{"amqp://user@127.0.0.1/?passwordfile=" + empty, "is empty"},
		{"amqp://user:secret@127.0.0.1/?passwordfile=" + empty, "user without a password"},
		{"amqp://127.0.0.1/?passwordfile=" + empty, "user without a password"},
	} {
		_, err := reprise.Dial(t.Context(), c.url, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got error %v, want %q", c.url, err, c.want)
		}
	}
}

// While its connections are open, a client passes new passwords to the broker.
func TestClientRefreshesCredentials(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		u, err := url.Parse(b.URL)
		if err != nil {
			t.Fatal(err)
		}
		user := u.User.Username()
		password, _ := u.User.Password()
		file := filepath.Join(t.TempDir(), "password")
		writeFile(t, file, password)
		u.User = url.User(user)
		inFile := *u
		inFile.RawQuery = url.Values{"passwordfile": {file}}.Encode()
		var calls atomic.Int64
		fromFunction := func(context.Context) (string, string, error) {
			if calls.Add(1) <= 2 {
				return user, password, nil
			}
			return user, "the next token", nil // the built-in users of the broker ignore it
		}
		for _, c := range []client{
			dial(t, inFile.String(), func(c *reprise.Config) { c.CredentialsRefresh = 10 * time.Millisecond }),
			dial(t, u.String(), func(c *reprise.Config) { c.Credentials, c.CredentialsRefresh = fromFunction, 10*time.Millisecond }),
		} {
			writeFile(t, file, "the next token")
			c.log.wait(t, "credentials refreshed", 2) // on both connections
			if err := c.Healthy(t.Context()); err != nil {
				t.Errorf("after the refresh: got %v, want nil", err)
			}
			if n := c.log.count("connected"); n != 2 {
				t.Errorf("got %d connections, want 2", n)
			}
		}
	})
}

// A client stops if the broker refuses credentials that only a restart can change.
func TestClientStopsAfterRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fromFunction bool
		restored     time.Duration // when the broker accepts the password again; 0: never
		stops        bool
	}{
		"fixed":         {stops: true},
		"fixed, import": {restored: 14 * time.Minute},
		"changeable":    {fromFunction: true, restored: 5 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, err := broker.New(broker.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = b.Shutdown(context.Background()) }()
				request := func(method, path, body string) {
					r := httptest.NewRequest(method, "/api/"+path, strings.NewReader(body))
					r.SetBasicAuth("guest", "guest")
					r.RemoteAddr = "127.0.0.1:1" // the only address of guest
					answer := httptest.NewRecorder()
					if b.Management().ServeHTTP(answer, r); answer.Code/100 != 2 {
						t.Errorf("%s %s returned %d: %s", method, path, answer.Code, answer.Body)
					}
				}
				set := func(password string) { request("PUT", "users/shop", `{"password":"`+password+`","tags":""}`) }
				set("old")
				request("PUT", "permissions/%2F/shop", `{"configure":".*","write":".*","read":".*"}`)
				open := sockets{via: b.DialContext}
				c := dial(t, "amqp://shop:old@broker/", func(c *reprise.Config) {
					c.Dial = open.dial
					c.Reconnect = backoff.Fixed(10 * time.Second)
					if tc.fromFunction {
						c.Credentials = func(context.Context) (string, string, error) { return "shop", "old", nil }
					}
				})
				defer func() { _ = c.Close(context.Background()) }()
				worker, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: "orders", Handler: newScript(nil)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- worker.Run(ctx) }()
				c.log.wait(t, "consuming", 1)
				set("new")
				open.close()
				if tc.restored > 0 {
					time.Sleep(tc.restored)
					set("old")
					c.log.wait(t, "consuming", 2)
				}
				if !tc.stops {
					time.Sleep(time.Hour)
					if err := c.Healthy(t.Context()); err != nil {
						t.Errorf("got %v, want nil", err)
					}
					cancel()
					if err := <-ended; err != nil {
						t.Errorf("Run: got %v, want nil", err)
					}
					return
				}
				err = <-ended
				if !errors.Is(err, reprise.ErrClosed) || !strings.Contains(err.Error(), "refused the credentials of the URL for 15m0s") || !strings.Contains(err.Error(), `"shop"`) {
					t.Errorf("Run: got %v, want ErrClosed with the reason", err)
				}
				time.Sleep(time.Minute) // the connection for publishing ends at its own next attempt
				for _, err := range []error{c.Healthy(t.Context()), c.Publish(t.Context(), &reprise.Message{RoutingKey: "orders"})} {
					if !errors.Is(err, reprise.ErrClosed) || !strings.Contains(err.Error(), "15m0s") {
						t.Errorf("got %v, want ErrClosed with the reason", err)
					}
				}
			})
		})
	}
}

// sockets opens network connections, and can close all of them.
type sockets struct {
	via  func(ctx context.Context, network, addr string) (net.Conn, error)
	mu   sync.Mutex
	open []net.Conn
}

func (s *sockets) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := s.via(ctx, network, addr)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = append(s.open, c)
	}
	return c, err
}

func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		_ = c.Close()
	}
	s.open = nil
}

// putUser creates a user with all permissions, or changes its password, over the management API.
func putUser(t *testing.T, api, user, password string) {
	t.Helper()
	put := func(path string, body any) {
		t.Helper()
		encoded, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, api+"/api"+path, strings.NewReader(string(encoded)))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("guest", "guest")
		r.Header.Set("Content-Type", "application/json")
		response, err := testkit.HTTPClient(t).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode/100 != 2 {
			t.Fatalf("PUT %s: got status %s, want 2xx", path, response.Status)
		}
	}
	put("/users/"+url.PathEscape(user), map[string]string{"password": password, "tags": ""})
	put("/permissions/%2F/"+url.PathEscape(user), map[string]string{"configure": ".*", "write": ".*", "read": ".*"})
	t.Cleanup(func() {
		r, err := http.NewRequest(http.MethodDelete, api+"/api/users/"+url.PathEscape(user), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("guest", "guest")
		if response, err := testkit.HTTPClient(t).Do(r); err == nil {
			_ = response.Body.Close()
		}
	})
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
