package config

import (
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
	"github.com/reprisemq/reprise/internal/amqpconn"
)

// brokerURL reads the URL of a broker. Errors never contain the URL, because it may contain a password.
func (v value) brokerURL() (string, bool) {
	s, ok := v.address("amqp://user:password@host:5672/")
	if !ok {
		return "", false
	}
	if bad, ok := errors.AsType[*reprise.ConnectError](reprise.CheckURL(s)); ok {
		return "", v.fail("broker: %s", bad.Reason)
	}
	return v.files(s, amqpconn.FileParameters...)
}

// files resolves the relative paths of the files that parameters of a valid URL name.
func (v value) files(s string, names ...string) (string, bool) {
	base, query, _ := strings.Cut(s, "?")
	parameters := strings.Split(query, "&")
	for i, parameter := range parameters {
		name, escaped, _ := strings.Cut(parameter, "=")
		path, err := url.QueryUnescape(escaped)
		if err != nil || path == "" || filepath.IsAbs(path) || !slices.Contains(names, name) {
			continue
		}
		path, ok := v.absolute(path)
		if !ok {
			return "", false
		}
		parameters[i] = name + "=" + url.QueryEscape(path)
		s = base + "?" + strings.Join(parameters, "&")
	}
	return s, true
}

// listen reads the listener of the embedded broker: an address, or a mapping with an address. Without users, it must be a
// loopback address, because the broker then has the user guest with the well-known default password.
func (v value) listen() (l Listen) {
	l.At = v.at
	v.short("listen", "address", DefaultListen, func(x value) {
		l.At = x.at
		host, port, ok := x.hostPort(DefaultListen)
		if l.Addr = net.JoinHostPort(host, port); !ok {
			l.Addr = ""
		}
	}, func(f *fields) {
		f.with("users", func(x value) { l.Users = x.users() })
		read(f, "certfile", &l.CertFile, path("cert.pem"))
		read(f, "keyfile", &l.KeyFile, path("key.pem"))
		read(f, "cacertfile", &l.CACertFile, path("ca.pem"))
	})
	host, port, err := net.SplitHostPort(l.Addr)
	switch ip := net.ParseIP(host); {
	case (l.CertFile == "") != (l.KeyFile == ""):
		v.fail("listen needs certfile and keyfile together: add the other one")
	case l.CACertFile != "" && l.CertFile == "":
		v.fail("listen needs certfile and keyfile with cacertfile, which is for client certificates: add them")
	case err == nil && len(l.Users) == 0 && host != "localhost" && (ip == nil || !ip.IsLoopback()):
		v.failAt(l.At, "listen needs users on an address that other machines can reach: write 127.0.0.1:%s, "+
			"or {address: %q, users: {NAME: PASSWORD}}", port, l.Addr)
	}
	return l
}

// users reads the users of the embedded broker.
func (v value) users() []Pair {
	all, _ := v.pairs(func(p field, password string) bool {
		switch {
		case p.key == "" || len(p.key) > maxName:
			return p.failAt(p.keyAt, "name of a user must have 1 to %d bytes", maxName)
		case p.key == "guest":
			return p.failAt(p.keyAt, "user guest is reserved for the workers of this process: use another name")
		case password == "":
			return p.fail("%s has an empty password: write ${NAME} or ${file:PATH} with its password", p.name)
		}
		return true
	})
	return all
}

// openAddr reads a listening address that need not be a loopback address. The host must be explicit, because it
// determines which machines can connect.
func openAddr(example string) reader[string] {
	return func(v value) (string, bool) {
		host, port, ok := v.hostPort(example)
		if ok && host == "" {
			return "", v.fail("%s must have a host; write 127.0.0.1:%s for local access only, or 0.0.0.0:%s for all networks", v.name, port, port)
		}
		return net.JoinHostPort(host, port), ok
	}
}

// hostPort reads a listening address. The host may be missing. The port must be a number.
func (v value) hostPort(example string) (host, port string, ok bool) {
	s, ok := v.text(example)
	if !ok {
		return "", "", false
	}
	host, port, err := net.SplitHostPort(s)
	switch {
	case err != nil:
		return "", "", v.fail("%s is not an address; write %s, or port 0 for a free port", v.name, example)
	case !isPort(port):
		return "", "", v.fail("%s must have a port from 0 to 65535; write %s, or port 0 for a free port", v.name, example)
	}
	return host, port, true
}

// isPort reports whether s is a port number, including 0.
func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// dataDir reads the data directory of the embedded broker. It returns "" for a broker in memory.
func (v value) dataDir() (string, bool) {
	switch s := v.plain(); {
	case s == inMemory:
		return "", true
	case strings.EqualFold(s, inMemory):
		return "", v.fail("write %s in lower case for no directory, or ./%s for a directory with this name", inMemory, s)
	}
	return path(DefaultData)(v)
}

// path reads a path, which may be relative to the directory of the configuration.
func path(example string) reader[string] {
	return func(v value) (string, bool) {
		s, ok := v.text(example)
		if !ok {
			return "", false
		}
		return v.absolute(s)
	}
}

// absolute resolves a relative path against the directory of the configuration.
func (v value) absolute(path string) (string, bool) {
	switch {
	case strings.HasPrefix(path, "~"):
		return "", v.fail("~ is not expanded; write ${HOME}, an absolute path, or a path relative to this file")
	case filepath.IsAbs(path):
		return path, true
	}
	return filepath.Join(v.dir, path), true
}

// service reads the URL of an HTTP service, which can listen on a Unix socket. It also returns the secret parts of the URL.
func (v value) service() (address string, secrets []string, ok bool) {
	s, ok := v.address("http://127.0.0.1:8080/path")
	if !ok {
		return "", nil, false
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "unix" {
		return v.endpoint()
	}
	socket, _, err := handler.UnixSocket(u)
	if err != nil {
		return "", nil, v.fail("%s %v; write unix:///run/service.sock:/path", v.name, err)
	}
	return s, slices.DeleteFunc(slices.Clone(v.secrets), func(value string) bool { // the socket is not secret
		return strings.Contains(value, socket) || strings.Contains(socket, value)
	}), true
}

// endpoint reads an http URL. It also returns the secret parts of the URL.
func (v value) endpoint() (address string, secrets []string, ok bool) {
	s, ok := v.address("http://127.0.0.1:8080/path")
	if !ok {
		return "", nil, false
	}
	u, err := url.Parse(s)
	wrong := ""
	switch {
	case err != nil:
		wrong = "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		wrong = "does not begin with http:// or https://"
	case u.Hostname() == "":
		wrong = "must have a host"
	case u.Port() != "" && (!isPort(u.Port()) || strings.Trim(u.Port(), "0") == ""):
		wrong = "must have a port from 1 to 65535"
	default:
		return s, secretsOf(v.secrets, u), true
	}
	return "", nil, v.fail("%s %s; write http://host:port/path", v.name, wrong)
}

// secretsOf returns the secret values of variables in a URL. The host of the URL is not secret. If a value contains the
// host, secretsOf returns only the path of the value, because errors never show the other parts.
func secretsOf(values []string, u *url.URL) []string {
	var secrets []string
	for _, value := range values {
		if !strings.Contains(value, u.Host) {
			if !strings.Contains(u.Host, value) {
				secrets = append(secrets, value)
			}
			continue
		}
		_, after, _ := strings.Cut(value, u.Host)
		path, _, _ := strings.Cut(after, "?")
		secrets = append(secrets, strings.Trim(path, "/"))
	}
	return secrets
}
