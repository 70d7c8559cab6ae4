package workertest

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/reprisemq/reprise"
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
					var sockets sockets
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

// sockets opens network connections, and can close all of them.
type sockets struct {
	mu   sync.Mutex
	open []net.Conn
}

func (s *sockets) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
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
