package brokertest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/internal/access"
)

// site is an in-memory broker whose clients can choose their addresses.
type site struct {
	conns chan net.Conn
	done  chan struct{}

	broker *broker.Broker
	wrong  atomic.Int64 // wrong passwords that were checked
	unread atomic.Int64 // logins that were refused without a check of the password
	remote atomic.Int64 // default logins from other machines
}

func newSite(t *testing.T) *site {
	s := &site{conns: make(chan net.Conn), done: make(chan struct{})}
	b, err := broker.New(broker.Config{
		Users:  map[string]string{"ada": "right", "bob": "right"},
		Logger: slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	must(t, err)
	s.broker = b
	var serving sync.WaitGroup
	serving.Go(func() { _ = b.Serve(s) }) // returns ErrClosed
	t.Cleanup(func() {
		must(t, b.Shutdown(context.Background()))
		serving.Wait()
	})
	return s
}

// Write implements [io.Writer] for the log.
func (s *site) Write(line []byte) (int, error) {
	switch text := string(line); {
	case strings.Contains(text, "wrong name or password"):
		s.wrong.Add(1)
	case strings.Contains(text, "only from this machine"):
		s.remote.Add(1)
	case strings.Contains(text, "was not checked"):
		s.unread.Add(1)
	}
	return len(line), nil
}

// Accept implements [net.Listener].
func (s *site) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (s *site) Close() error {
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	return nil
}

// Addr implements [net.Listener].
func (s *site) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "site"} }

// connFrom is a connection with a fixed remote address.
type connFrom struct {
	net.Conn
	addr *net.TCPAddr
}

func (c connFrom) RemoteAddr() net.Addr { return c.addr }

// logIn logs in and out, and returns the duration of the login.
func (s *site) logIn(addr, user, password string) (time.Duration, error) {
	begin := time.Now()
	conn, err := amqp.DialConfig("amqp://"+user+":"+password+"@site/", amqp.Config{Dial: func(string, string) (net.Conn, error) {
		client, server := net.Pipe()
		s.conns <- connFrom{server, &net.TCPAddr{IP: net.ParseIP(addr), Port: 1}}
		return client, nil
	}})
	took := time.Since(begin)
	if err == nil {
		err = conn.Close()
	}
	return took, err
}

const (
	guesser = "192.0.2.1"
	another = "192.0.2.2"
)

// An attacker who guesses the password of a user has about 720 attempts per hour, regardless of the number of
// connections. The broker does not delay other users.
func TestBrokerLimitsPasswordGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var guessers sync.WaitGroup
		for range 10 {
			guessers.Go(func() {
				for ctx.Err() == nil {
					if _, err := s.logIn(guesser, "ada", "wrong"); err == nil {
						t.Error("login with a wrong password succeeded")
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		for ctx.Err() == nil {
			time.Sleep(time.Minute)
			for _, who := range []struct{ addr, user string }{{another, "ada"}, {another, "bob"}, {guesser, "bob"}} {
				if took, err := s.logIn(who.addr, who.user, "right"); took != 0 || err != nil {
					t.Errorf("login of %s from %s: got %v after %v, want immediate success", who.user, who.addr, err, took)
				}
			}
		}
		guessers.Wait()
		if n := s.wrong.Load(); n < 720 || n > 730 { // the last attempts began before the end of the hour
			t.Errorf("checked passwords: got %d, want about 725", n)
		}
	})
}

// If an attacker has the same address as a user, the user's first login with the right password waits at most five
// seconds.
func TestLoginFromAddressOfAttacker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for guesses, wait := range map[int]time.Duration{4: 0, 5: time.Second, 25: 5 * time.Second} {
			s := newSite(t)
			for range guesses {
				if _, err := s.logIn(guesser, "ada", "wrong"); !errors.Is(err, amqp.ErrCredentials) && !strings.Contains(err.Error(), "403") {
					t.Errorf("login with a wrong password: got %v, want a refusal", err)
				}
			}
			if took, err := s.logIn(guesser, "ada", "right"); took != wait || err != nil {
				t.Errorf("login after %d wrong passwords: got %v after %v, want success after %v", guesses, err, took, wait)
			}
		}
	})
}

// If a user has logged in from an address before, programs that use an old password do not lock out programs that use
// the new password at this address.
func TestOldPasswordDoesNotLockOutNewPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		_, err := s.logIn(guesser, "ada", "right")
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var old sync.WaitGroup
		for range 40 {
			old.Go(func() {
				for ctx.Err() == nil {
					if _, err := s.logIn(guesser, "ada", "wrong"); err == nil {
						t.Error("login with a wrong password succeeded")
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		for range 50 {
			time.Sleep(time.Minute)
			if took, err := s.logIn(guesser, "ada", "right"); took != 0 || err != nil {
				t.Errorf("login: got %v after %v, want immediate success", err, took)
			}
		}
		old.Wait()
	})
}

// The broker delays a limited number of logins at a time, and refuses further logins immediately.
func TestBrokerLimitsDelayedLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		for range 9 {
			_, _ = s.logIn(guesser, "ada", "wrong")
		}
		var all sync.WaitGroup
		var held, refused atomic.Int64
		for range 300 {
			all.Go(func() {
				switch took, err := s.logIn(guesser, "ada", "wrong"); {
				case err == nil:
					t.Error("login with a wrong password succeeded")
				case took == 0:
					refused.Add(1)
				default:
					held.Add(1)
				}
			})
		}
		time.Sleep(time.Second)
		if took, err := s.logIn(another, "ada", "right"); took != 0 || err != nil {
			t.Errorf("login from another address: got %v after %v, want immediate success", err, took)
		}
		all.Wait()
		if held.Load() != 100 || refused.Load() != 200 {
			t.Errorf("got %d delayed and %d refused logins, want 100 and 200", held.Load(), refused.Load())
		}
	})
}

// Delayed logins from the address of an attacker do not affect other addresses, and the broker still accepts the right
// password from there.
func TestDelayedLoginsDoNotAffectOtherAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		_, err := s.logIn(another, "ada", "right")
		must(t, err)
		for range 9 {
			_, _ = s.logIn(guesser, "ada", "wrong")
		}
		var guesses sync.WaitGroup
		for range 300 {
			guesses.Go(func() { _, _ = s.logIn(guesser, "ada", "wrong") })
		}
		synctest.Wait()
		for _, user := range []string{"ada", "bob"} { // the broker must then delay the next login
			for range 5 {
				_, _ = s.logIn(another, user, "wrong")
			}
		}
		if took, err := s.logIn(another, "ada", "right"); took != 0 || err != nil {
			t.Errorf("login of a known user: got %v after %v, want immediate success", err, took)
		}
		if took, err := s.logIn(another, "bob", "right"); took != time.Second || err != nil {
			t.Errorf("first login of a user: got %v after %v, want success after 1s", err, took)
		}
		guesses.Wait()
	})
}

// A user who logs in once a day from an address stays known at this address.
func TestDailyLoginKeepsUserKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		_, err := s.logIn(guesser, "ada", "right")
		must(t, err)
		for day := range 3 {
			time.Sleep(23 * time.Hour)
			for range 6 {
				_, _ = s.logIn(guesser, "ada", "wrong")
			}
			if took, err := s.logIn(guesser, "ada", "right"); took != 0 || err != nil {
				t.Errorf("login on day %d: got %v after %v, want immediate success", day+1, err, took)
			}
		}
	})
}

// Wrong passwords in requests to the management API count, too. If a login must wait, the API refuses the request
// instead of delaying it.
func TestManagementLimitsPasswordGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		ask := func(addr, user, password string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", "/api/whoami", nil)
			r.SetBasicAuth(user, password)
			r.RemoteAddr = addr + ":1"
			w := httptest.NewRecorder()
			s.broker.Management().ServeHTTP(w, r)
			return w
		}
		checked := 0
		for range 3600 {
			switch w := ask(guesser, "ada", "wrong"); w.Code {
			case http.StatusUnauthorized:
				checked++
			case http.StatusTooManyRequests:
				if w.Header().Get("Retry-After") == "" {
					t.Error("response has no Retry-After header")
				}
			default:
				t.Errorf("status: got %d, want 401 or 429", w.Code)
			}
			time.Sleep(time.Second)
		}
		if checked != 725 {
			t.Errorf("checked passwords: got %d, want 725", checked)
		}
		for _, who := range []struct {
			addr, user string
			want       int
		}{{guesser, "ada", 429}, {guesser, "bob", 200}, {another, "ada", 200}} {
			if w := ask(who.addr, who.user, "right"); w.Code != who.want {
				t.Errorf("request of %s from %s: got %d, want %d: %s", who.user, who.addr, w.Code, who.want, w.Body)
			}
		}
		if took, err := s.logIn(guesser, "ada", "right"); took == 0 || err != nil {
			t.Errorf("AMQP login after guesses over HTTP: got %v after %v, want success with a delay", err, took)
		}
	})
}

// The default login is valid only from the same machine, even if an administrator creates the user guest after the start.
func TestDefaultLoginRequiresLocalAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		ask := func(addr, user, password, method, path, body string) int {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.SetBasicAuth(user, password)
			r.RemoteAddr = addr
			w := httptest.NewRecorder()
			s.broker.Management().ServeHTTP(w, r)
			return w.Code
		}
		for _, put := range [][2]string{
			{"/api/users/guest", `{"password":"guest","tags":"administrator"}`},
			{"/api/permissions/%2F/guest", `{"configure":".*","write":".*","read":".*"}`},
		} {
			if status := ask(another+":1", "bob", "right", "PUT", put[0], put[1]); status != http.StatusCreated {
				t.Fatalf("PUT %s: got status %d, want 201", put[0], status)
			}
		}
		for addr, here := range map[string]bool{
			"127.0.0.1": true, "127.1.2.3": true, "::1": true, "::ffff:127.0.0.1": true,
			another: false, "0.0.0.0": false, "fe80::1": false, "2001:db8::1": false, "::ffff:192.0.2.2": false,
		} {
			_, err := s.logIn(addr, "guest", "guest")
			if here && err != nil || !here && (err == nil || !strings.Contains(err.Error(), "403")) {
				t.Errorf("AMQP login from %s: got %v, want success: %v", addr, err, here)
			}
			want := map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[here]
			if status := ask(net.JoinHostPort(addr, "1"), "guest", "guest", "GET", "/api/whoami", ""); status != want {
				t.Errorf("HTTP request from %s: got %d, want %d", addr, status, want)
			}
		}
		for peer, want := range map[string]int{"pipe": http.StatusOK, "@": http.StatusOK, another: http.StatusUnauthorized} {
			if status := ask(peer, "guest", "guest", "GET", "/api/whoami", ""); status != want {
				t.Errorf("HTTP request from %s: got %d, want %d", peer, status, want)
			}
		}
		if s.remote.Load() == 0 {
			t.Error("log does not contain the reason")
		}
		dial(t, s.broker) // guest may log in over an in-memory connection
		must(t, nodeOf(s.broker).Access.SetUser(access.User{Name: "guest", Hash: access.HashPassword("other")}))
		if _, err := s.logIn(another, "guest", "other"); err != nil {
			t.Errorf("login of guest with another password: %v", err)
		}
	})
}
