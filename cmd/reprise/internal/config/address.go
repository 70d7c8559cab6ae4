package config

import (
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise"
)

// brokerURL reads the URL of a broker. Its text never appears in a message:
// it holds a password, often from a variable.
func (v value) brokerURL() string {
	s, ok := v.text("amqp://user:password@host:5672/")
	if !ok {
		return ""
	}
	if s, ok = v.expand(s); !ok {
		return ""
	}
	if bad, ok := errors.AsType[*reprise.ConnectError](reprise.CheckURL(s)); ok {
		v.fail("broker: %s", bad.Reason)
		return ""
	}
	return s
}

// listenAddr reads where the embedded broker listens: on this machine only,
// since its user is guest with the password everybody knows.
func (v value) listenAddr() string {
	host, port, ok := v.hostPort(DefaultListen)
	if !ok {
		return ""
	}
	addr := net.JoinHostPort(host, port)
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		v.fail("listen is reachable from other machines, but the embedded broker has the default password: write 127.0.0.1:%s, "+
			"or run `reprise broker --listen %s` with a password of its own and name it under broker:", port, addr)
		return ""
	}
	return addr
}

// openAddr reads where something listens that may be for other machines, which the
// address then has to say.
func (v value) openAddr(example string) string {
	host, port, ok := v.hostPort(example)
	switch {
	case !ok:
		return ""
	case host == "":
		v.fail("%s names no host: write 127.0.0.1:%s for this machine only, or 0.0.0.0:%s for others too", v.name, port, port)
		return ""
	}
	return net.JoinHostPort(host, port)
}

// hostPort reads an address to listen on. Its host may be missing; its port is a number.
func (v value) hostPort(example string) (host, port string, ok bool) {
	s, ok := v.text(example)
	if !ok {
		return "", "", false
	}
	host, port, err := net.SplitHostPort(s)
	switch {
	case err != nil:
		v.fail("%s is no address: write %s, or port 0 for any free one", v.name, example)
		return "", "", false
	case !isPort(port):
		v.fail("%s has no port from 0 to 65535: write %s, or port 0 for any free one", v.name, example)
		return "", "", false
	}
	return host, port, true
}

// isPort reports whether a text is the number of a port, 0 among them.
func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// dataDir reads where the embedded broker keeps its data; "" for nowhere.
func (v value) dataDir() string {
	s, ok := v.text(DefaultData)
	switch {
	case !ok, s == inMemory:
		return ""
	case strings.EqualFold(s, inMemory):
		v.fail("write %s in small letters for no directory, or ./%s for one of that name", inMemory, s)
		return ""
	}
	return v.path(s)
}

// filePath reads the path of a file.
func (v value) filePath(example string) string {
	s, ok := v.text(example)
	if !ok {
		return ""
	}
	return v.path(s)
}

// path takes a path that is relative from where the configuration is.
func (v value) path(s string) string {
	switch {
	case strings.HasPrefix(s, "~") || strings.Contains(s, "${"):
		v.fail("~ and variables stand for nothing here: write the path, from the root or from where this file is")
		return ""
	case filepath.IsAbs(s):
		return s
	}
	return filepath.Join(v.dir, s)
}

// endpoint reads the URL of an HTTP service, and returns what is secret of it.
func (v value) endpoint() (address string, secrets []string) {
	s, ok := v.text("http://127.0.0.1:8080/path")
	if !ok {
		return "", nil
	}
	s, values, ok := v.expanded(s)
	if !ok {
		return "", nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		v.fail("%s is no URL: write http://host:port/path", v.name)
	case u.Scheme != "http" && u.Scheme != "https":
		v.fail("%s does not begin with http:// or https://: write http://host:port/path", v.name)
	case u.Hostname() == "":
		v.fail("%s names no host: write http://host:port/path", v.name)
	case u.Port() != "" && (!isPort(u.Port()) || strings.Trim(u.Port(), "0") == ""):
		v.fail("%s has no port from 1 to 65535: write http://host:port/path", v.name)
	default:
		return s, secretsOf(values, u)
	}
	return "", nil
}

// secretsOf are the values of variables in a URL that are not for all to see. Its host
// is. Of a value with a host in it, the path is a secret; what else there may be, no
// error shows anyway.
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
