package amqpconn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Each address in a list equals the address that the AMQP client and this package parse from a URL with only that host.
func TestParseURLWithSeveralHosts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		pick := func(of ...string) string { return of[random.IntN(len(of))] }
		scheme := pick("amqp", "amqps", "AMQP")
		login := pick("", "user@", "user:@", "a%40b:p%2Fw%2C@", "user:p,w@", "u:"+url.PathEscape(anyText(random))+"@")
		var hosts []string
		for range 1 + random.IntN(5) {
			host := pick("localhost", "h1", "node-2.example.org", "10.0.0.7", "[::1]", "[2001:db8::7]")
			if random.IntN(2) == 0 {
				host += fmt.Sprintf(":%d", 1+random.IntN(65535))
			}
			hosts = append(hosts, host)
		}
		tail := pick("", "/", "/vhost", "/%2F", "/a%2Cb", "?heartbeat=5", "/v?connection_timeout=700&auth_mechanism=external", "?cacertfile=file:///etc/ca.pem&certfile=/home/me@work/cert.pem&keyfile=a@b,c")
		if strings.Contains(tail, "certfile") {
			scheme = "amqps"
		}
		all, err := ParseURL(scheme + "://" + login + strings.Join(hosts, ",") + tail)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != len(hosts) {
			t.Fatalf("addresses for %q: got %d, want %d", hosts, len(all), len(hosts))
		}
		for i, host := range hosts {
			want, err := amqp.ParseURI(scheme + "://" + login + host + tail)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(all[i].URI) != fmt.Sprint(want) {
				t.Fatalf("address %d: got %+v, want %+v", i, all[i].URI, want)
			}
			if host, port, err := net.SplitHostPort(all[i].addr); err != nil || host != want.Host || port != fmt.Sprint(want.Port) {
				t.Fatalf("host:port of address %d: got %q, want %s and %d", i, all[i].addr, want.Host, want.Port)
			}
		}
	}
}

// A password without percent-encoding may be split over several parts of the URL. No part of it appears in an error or
// as a host.
func TestParseURLHidesPassword(t *testing.T) {
	const secret = "sEcReT"
	random := rand.New(rand.NewPCG(3, 4))
	special := func() string {
		var b strings.Builder
		for range random.IntN(5) {
			all := []rune("/?#@:,%[] &=+\\\x00\né1")
			b.WriteRune(all[random.IntN(len(all))])
		}
		return b.String()
	}
	for range 2000 {
		password := special() + secret + special() + secret + special()
		raws := []string{
			"amqp://user:" + password + "@host/vhost",
			"amqp://user:" + password + "@h1,h2:1,h3/vhost?heartbeat=5",
			"amqp://u:" + password + "@h1,u:" + password + "@h2/",
			"amqp://u:" + password + "@h1/,amqp://u:" + password + "@h2/",
			"amqp://u:" + password + "@h1,amqp://u:" + password + "@h2",
			"amqp://" + password + "@host:99999",
			"amqps://u:" + password + "@h1?cacertfile=/ca@x,amqps://u:" + password + "@h2",
			"amqp://u:" + password + "@host?heartbeat=" + password,
			"amqp://u:" + password + "@host?auth_mechanism=" + password,
			"amqp://u:p@host?" + password + "=" + password,
			"amqps://u:p@host?verify=" + password,
			"http://user:" + password + "@host",
			"user:" + password + "@host",
		}
		raw := raws[random.IntN(len(raws))]
		all, err := ParseURL(raw)
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), secret) {
				t.Fatalf("%q: error contains the password: %v", raw, e)
			}
		}
		for _, a := range all {
			if strings.Contains(a.addr, secret) {
				t.Fatalf("%q: address contains the password: %s", raw, a.addr)
			}
		}
	}
}

func anyText(random *rand.Rand) string {
	b := make([]rune, random.IntN(20))
	for i := range b {
		b[i] = rune(random.IntN(0x3000))
	}
	return string(b)
}

func TestParseURLRejectsInvalidURL(t *testing.T) {
	for url, want := range map[string]string{
		"":                            "does not begin with amqp:// or amqps://",
		"localhost:5672":              "does not begin with amqp:// or amqps://",
		"amqp://h1, h2":               "it contains spaces or line breaks",
		"amqp://":                     "host 1 of 1 has no name",
		"amqp://u:p@:5672/":           "host 1 of 1 has no name",
		"amqp://h1,,h3":               "host 2 of 3 has no name",
		"amqp://h1,/vhost":            "host 2 of 2 has no name",
		"amqp://h1,h2:amqp":           "the port of host 2 must be 1 to 65535",
		"amqp://h1:0":                 "the port of host 1 must be 1 to 65535",
		"amqp://h1:65536":             "the port of host 1 must be 1 to 65535",
		"amqp://h1,::1":               "host 2 has several colons: write an IPv6 address in brackets",
		"amqp://u:p@h1,amqp://u:p@h2": "it contains several URLs; a list of hosts has one user, one password and one virtual host",
		"amqp://u:p@h1/?cacertfile=/x,amqp://u:p@h2/": "it contains several URLs",
		"amqp://u:p@h1,u:p@h2":                        "user and password must occur once, before the first host",
		"amqp://u:p/w@h1":                             "an @ follows the hosts, often because of a /, ? or # in the password",
		"amqp://h1/v@x":                               "an @ follows the hosts",
		"amqp://u:p%zz@h1":                            "it is malformed, often because of special characters in the password",
		"amqp://h1?heartbeat=often":                   "heartbeat is not an uint16",
		"amqp://h1?connection_timeout=5s":             "connection_timeout is not an integer",
		"amqp://h1?connection_timeout=-1":             "connection_timeout must not be negative (it is in milliseconds)",
		"amqp://h1?auth_mechanism=kerberos":           "auth_mechanism must be plain, amqplain or external",

		// Parameters that the AMQP client would ignore.
		"amqps://h1?cacert=/ca.pem":                  "it has an unknown parameter, perhaps for cacertfile; the parameters are auth_mechanism, channel_max, ",
		"amqps://h1?key=/k":                          "perhaps for keyfile;",
		"amqps://h1?CACERTFILE=/ca.pem":              "perhaps for cacertfile;",
		"amqps://h1?server_name=x":                   "perhaps for server_name_indication;",
		"amqp://h1?timeout=5000":                     "perhaps for connection_timeout;",
		"amqp://h1?connectionTimeout=5000":           "perhaps for connection_timeout;",
		"amqp://h1?frame_max=4096":                   "it has an unknown parameter; the parameters are auth_mechanism, ",
		"amqp://h1,h2/v?heartbeat=5&x=1":             "it has an unknown parameter;",
		"amqp://h1?heartbeat=5;connection_timeout=1": "its parameters are malformed",
		"amqp://h1?heartbeat=5#x":                    "a # follows the hosts",
		"amqp://h1/v#x":                              "a # follows the hosts",
		"amqp://h1?heartbeat=5&heartbeat=6":          "parameter heartbeat is set twice",
		"amqps://h1?cacertfile=":                     "its parameter cacertfile is empty",
		"amqp://h1?cacertfile=/ca.pem":               "its parameter cacertfile requires amqps://",
		"amqp://h1?verify=verify_peer":               "its parameter verify requires amqps://",
		"amqps://h1?verify=verify_none":              "its parameter verify must be verify_peer",
		"amqps://h1?certfile=/c":                     "needs both of its parameters certfile and keyfile",
	} {
		_, err := ParseURL(url)
		if _, ok := errors.AsType[*ConnectError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", url, err, want)
		}
	}
}

func TestParseURLWithAllParameters(t *testing.T) {
	all, err := ParseURL("amqps://h1,h2:5673/v?cacertfile=/ca&certfile=/c&keyfile=/k&verify=verify_peer&server_name_indication=name&" +
		"auth_mechanism=plain&auth_mechanism=external&heartbeat=7&connection_timeout=5000&channel_max=9")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		want := amqp.URI{
			Scheme: "amqps", Host: a.Host, Port: a.Port, Username: "guest", Password: "guest", Vhost: "v",
			CACertFile: "/ca", CertFile: "/c", KeyFile: "/k", ServerName: "name", AuthMechanism: []string{"plain", "external"},
			Heartbeat: a.Heartbeat, ConnectionTimeout: 5000, ChannelMax: 9,
		}
		if fmt.Sprint(a.URI) != fmt.Sprint(want) {
			t.Errorf("got %+v, want %+v", a.URI, want)
		}
	}
}

// The clients of a failed node spread over the other nodes.
func TestRotationIsRandom(t *testing.T) {
	all, err := ParseURL("amqp://h1,h2,h3")
	if err != nil {
		t.Fatal(err)
	}
	orders := map[string]bool{}
	for range 500 {
		r := all.Rotation()
		var order []string
		for range 3 {
			order = append(order, r.next().Host)
		}
		if again := []string{r.next().Host, r.next().Host, r.next().Host}; !slices.Equal(order, again) {
			t.Fatalf("order changed from %v to %v", order, again)
		}
		orders[strings.Join(order, " ")] = true
		if sibling := r.sibling(); sibling.next().Host != order[2] {
			t.Fatalf("sibling of %v does not start with the last address", order)
		}
	}
	if len(orders) != 6 {
		t.Errorf("orders of 3 hosts: got %d, want 6: %v", len(orders), orders)
	}
}

// If the connection closes during the handshake, the cause may be a refusal or a broken network.
func TestRotationConfirmsInferredRefusal(t *testing.T) {
	inferred := &refusedError{&ConnectError{Reason: "inferred"}}
	certain := &ConnectError{Reason: "certain"}
	gone := errors.New("unreachable")
	for _, tc := range []struct {
		hosts int
		errs  []error
		want  int // number of the attempt at which refusal returns an error; 0: none
	}{
		{1, []error{certain}, 1},
		{1, []error{inferred, inferred}, 2},
		{1, []error{inferred, gone, inferred, inferred}, 4},
		{1, []error{gone, certain}, 2},
		{3, []error{inferred, inferred}, 2},
		{3, []error{inferred, gone, gone, inferred}, 4},
		{3, []error{gone, gone, inferred, gone, inferred, inferred}, 6},
		{2, []error{inferred, gone, gone, gone, inferred, gone, gone}, 0},
	} {
		all, err := ParseURL("amqp://h1,h2,h3"[:len("amqp://")+3*tc.hosts-1])
		if err != nil {
			t.Fatal(err)
		}
		r := all.Rotation()
		refusedAt := 0
		for i, err := range tc.errs {
			r.next()
			if refusal := r.refusal(err); refusal != nil {
				if _, ok := errors.AsType[*ConnectError](refusal); !ok {
					t.Errorf("%v is not a ConnectError", refusal)
				}
				refusedAt = i + 1
				break
			}
		}
		if refusedAt != tc.want {
			t.Errorf("%d hosts, %v: got refusal at %d, want %d", tc.hosts, tc.errs, refusedAt, tc.want)
		}
	}
}
