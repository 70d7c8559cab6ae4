package amqpconn

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Addresses are the broker addresses in a URL.
type Addresses []address

// TLS reports whether connections use TLS. All addresses have the same scheme.
func (a Addresses) TLS() bool { return a[0].Scheme == "amqps" }

// First returns the host:port of the first address.
func (a Addresses) First() string { return a[0].addr }

// address is one of the broker addresses in a URL.
type address struct {
	amqp.URI
	addr      string        // host:port
	heartbeat time.Duration // the URL's parameter, or DefaultHeartbeat

	amqp091      bool   // use amqp091-go instead of package amqpclient
	passwordFile string // file of the password; "": the password is in the URL
}

// mechanisms returns the login mechanisms of the URL with its user and password.
func (a address) mechanisms() []amqp.Authentication {
	var all []amqp.Authentication
	for _, m := range a.AuthMechanism {
		switch strings.ToUpper(m) {
		case "EXTERNAL":
			all = append(all, &amqp.ExternalAuth{})
		case "AMQPLAIN":
			all = append(all, a.AMQPlainAuth())
		default:
			all = append(all, a.PlainAuth())
		}
	}
	if all == nil {
		all = []amqp.Authentication{a.PlainAuth()}
	}
	return all
}

// parameter returns a parameter in the tail of a valid URL, or "".
func parameter(tail, name string) string {
	_, query, _ := strings.Cut(tail, "?")
	parameters, _ := url.ParseQuery(query)
	return parameters.Get(name)
}

// heartbeatOf returns the parameter heartbeat in the tail of a valid URL, or DefaultHeartbeat.
func heartbeatOf(tail string) time.Duration {
	if seconds, err := strconv.ParseUint(parameter(tail, "heartbeat"), 10, 16); err == nil {
		return time.Duration(seconds) * time.Second
	}
	return DefaultHeartbeat
}

// ParseURL parses a URL with one or several addresses:
//
//	amqp://user:password@host1:5672,host2,[::1]:5673/vhost?heartbeat=5
//
// The client supports only one address, so ParseURL parses a URL for each address. Errors quote no part of the URL
// except known parameter names, because any other part could belong to a password.
// https://www.rabbitmq.com/docs/uri-spec
func ParseURL(url string) (Addresses, error) {
	fault := func(format string, args ...any) (Addresses, error) {
		return nil, &ConnectError{Reason: fmt.Sprintf("cannot use this broker URL (%s); use amqp://user:password@host:5672/vhost, "+
			"special characters percent-encoded (@ is %%40, / is %%2F, %% is %%25), further hosts of a cluster after commas", fmt.Sprintf(format, args...))}
	}
	scheme, rest, found := strings.Cut(url, "://")
	scheme = strings.ToLower(scheme)
	if !found || (scheme != "amqp" && scheme != "amqps") {
		return fault("it does not begin with amqp:// or amqps://")
	}
	if strings.ContainsAny(rest, " \t\r\n") {
		return fault("it contains spaces or line breaks")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	login, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		login, hosts = authority[:i+1], authority[i+1:]
	}
	sibling := withoutFiles(tail)
	switch {
	case strings.Contains(authority+sibling, "://"):
		return fault("it contains several URLs; a list of hosts has one user, one password and one virtual host")
	case strings.Contains(sibling, "@"):
		// A character of the password may have cut off the rest of the login, or the @ may belong to the virtual host.
		// The parser cannot distinguish the two.
		return fault("an @ follows the hosts, often because of a /, ? or # in the password")
	case strings.Contains(login, ",") && strings.Count(login, "@") > 1:
		return fault("user and password must occur once, before the first host, with %%40 for each @")
	}
	if wrong := checkParameters(scheme, tail); wrong != "" {
		return fault("%s", wrong)
	}
	if user, _, password := strings.Cut(strings.TrimSuffix(login, "@"), ":"); parameter(tail, "passwordfile") != "" && (user == "" || password) {
		return fault("with the parameter passwordfile, the login must be a user without a password: amqp://user@host/?passwordfile=/path")
	}
	var all Addresses
	list := strings.Split(hosts, ",")
	for i, host := range list {
		if strings.Count(host, ":") > 1 && !strings.HasPrefix(host, "[") {
			return fault("host %d has several colons: write an IPv6 address in brackets", i+1)
		}
		if host == "" || host[0] == ':' {
			return fault("host %d of %d has no name", i+1, len(list))
		}
		if port := portOf(host); port != "" {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return fault("the port of host %d must be 1 to 65535", i+1)
			}
		}
		a := address{heartbeat: heartbeatOf(tail), passwordFile: parameter(tail, "passwordfile"), amqp091: parameter(tail, "client") == amqp091Client}
		var err error
		if a.URI, err = amqp.ParseURI(scheme + "://" + login + host + tail); err != nil {
			return fault("%s", malformed(err))
		}
		if a.ConnectionTimeout < 0 {
			return fault("connection_timeout must not be negative (it is in milliseconds)")
		}
		for _, m := range a.AuthMechanism {
			if !slices.Contains([]string{"PLAIN", "AMQPLAIN", "EXTERNAL"}, strings.ToUpper(m)) {
				return fault("auth_mechanism must be plain, amqplain or external")
			}
		}
		a.addr = net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
		all = append(all, a)
	}
	return all, nil
}

// FileParameters are the parameters of a URL whose values are paths.
var FileParameters = []string{"cacertfile", "certfile", "keyfile", "passwordfile"}

// Parameters of a URL. https://www.rabbitmq.com/docs/uri-query-parameters
var (
	plainParameters = []string{"auth_mechanism", "channel_max", "client", "connection_timeout", "heartbeat", "passwordfile"}
	tlsParameters   = []string{"cacertfile", "certfile", "keyfile", "server_name_indication", "verify"}
)

// amqp091Client is the value of the parameter client that selects amqp091-go.
const amqp091Client = "amqp091-go"

// checkParameters returns the first fault in the parameters of a URL, or "". The AMQP client ignores unknown
// parameters. The result does not quote unknown names, because they could be part of a password.
func checkParameters(scheme, tail string) string {
	path, query, _ := strings.Cut(tail, "?")
	if strings.Contains(path+query, "#") {
		return "a # follows the hosts; use %23 in a password"
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return "its parameters are malformed"
	}
	all := slices.Concat(plainParameters, tlsParameters)
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		values := parameters[name]
		switch {
		case !slices.Contains(all, name):
			return unknownParameter(name, all)
		case slices.Contains(values, ""):
			return "its parameter " + name + " is empty"
		case len(values) > 1 && name != "auth_mechanism":
			return "parameter " + name + " is set twice"
		case name == "client" && values[0] != amqp091Client:
			return "its parameter client must be " + amqp091Client
		case scheme != "amqps" && slices.Contains(tlsParameters, name):
			return "its parameter " + name + " requires amqps://"
		case name == "verify" && values[0] != "verify_peer":
			return "its parameter verify must be verify_peer (cacertfile sets the authority, server_name_indication the name in the certificate)"
		}
	}
	if parameters.Has("certfile") != parameters.Has("keyfile") {
		return "a client certificate needs both of its parameters certfile and keyfile"
	}
	return ""
}

// unknownParameter returns a message about an unknown parameter, with the parameter that the user probably meant, if
// any, and a list of all parameters.
func unknownParameter(name string, all []string) string {
	letters := func(s string) string {
		return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(s))
	}
	var text strings.Builder
	text.WriteString("it has an unknown parameter")
	for _, known := range all {
		if short := letters(name); len(short) > 1 && (strings.HasPrefix(letters(known), short) || strings.HasSuffix(letters(known), short)) {
			text.WriteString(", perhaps for " + known)
			break
		}
	}
	return text.String() + "; the parameters are " + strings.Join(all, ", ")
}

// withoutFiles returns the tail of a URL without the parameters for files, because a file path may contain any
// characters. It keeps a parameter whose value contains another URL.
func withoutFiles(tail string) string {
	path, query, _ := strings.Cut(tail, "?")
	for parameter := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(parameter, "=")
		file := slices.Contains(FileParameters, name)
		if !file || strings.Contains(value, ",amqp://") || strings.Contains(value, ",amqps://") {
			path += "?" + parameter
		}
	}
	return path
}

// portOf returns the port of host:port or [v6]:port, and "" for host or [v6].
func portOf(host string) string {
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		return host[i+1:]
	}
	return ""
}

// malformed returns the fault that the AMQP client has found, without quoting the URL.
func malformed(err error) string {
	for _, parameter := range []string{"heartbeat is not an uint16", "connection_timeout is not an integer", "channel_max is not an uint16"} {
		if strings.HasPrefix(err.Error(), parameter) {
			return parameter
		}
	}
	return "it is malformed, often because of special characters in the password"
}

// login returns the user name for the broker, or "" if a certificate contains the name.
func (a address) login() string {
	if slices.ContainsFunc(a.AuthMechanism, func(m string) bool { return strings.EqualFold(m, "EXTERNAL") }) {
		return ""
	}
	return a.Username
}

// Rotation is the order in which a Link tries addresses. Each attempt uses the next address.
type Rotation struct {
	all       Addresses
	index     int    // the address tried last
	suspected []bool // for each address: whether the last attempt seemed to be refused
}

// Rotation returns the addresses in a random order, so that the clients of a failed node spread over the other nodes.
func (a Addresses) Rotation() Rotation {
	all := a
	all = slices.Clone(all)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return Rotation{all: all, index: len(all) - 1, suspected: make([]bool, len(all))}
}

// sibling returns a rotation that starts with the address that r tried last.
func (r *Rotation) sibling() Rotation {
	n := len(r.all)
	return Rotation{all: r.all, index: (r.index + n - 1) % n, suspected: make([]bool, n)}
}

func (r *Rotation) next() address {
	r.index = (r.index + 1) % len(r.all)
	return r.all[r.index]
}

// round returns the round to which an attempt belongs, and reports whether the attempt is the first of its round.
// Rounds and attempts count from 1. Each round tries all addresses.
func (r *Rotation) round(attempt int) (n int, begins bool) {
	return (attempt-1)/len(r.all) + 1, (attempt-1)%len(r.all) == 0
}

// timeout returns the timeout for the TCP connect and the TLS and AMQP handshakes together.
func (r *Rotation) timeout(a address) time.Duration {
	switch {
	case a.ConnectionTimeout > 0:
		return time.Duration(a.ConnectionTimeout) * time.Millisecond
	case len(r.all) > 1:
		return handshakeTimeoutOfMany
	}
	return handshakeTimeout
}

// refusal returns the error of the last attempt if it is a refusal, or else nil. An inferred refusal counts if it
// occurs twice, either in a row or at the same address.
func (r *Rotation) refusal(err error) error {
	inferred, suspect := errors.AsType[*refusedError](err)
	before := r.suspected[r.index] || r.suspected[(r.index+len(r.all)-1)%len(r.all)]
	r.suspected[r.index] = suspect
	if suspect {
		if before {
			return inferred.err
		}
		return nil
	}
	if _, certain := errors.AsType[*ConnectError](err); certain {
		return err
	}
	return nil
}

// String returns all addresses, sorted and separated by commas.
func (r *Rotation) String() string { return r.all.String() }

// String returns all addresses, sorted and separated by commas.
func (a Addresses) String() string {
	names := make([]string, len(a))
	for i, a := range a {
		names[i] = a.addr
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}
