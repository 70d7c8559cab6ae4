package dial

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/pemfile"
)

// managementURL parses the URL of a management API. The URL may contain a user and a password, and the
// parameter cacertfile, as the URL of a broker.
func managementURL(flag, raw string) (*url.URL, error) {
	const example = "http://user:password@host:15672"
	u, err := url.Parse(raw)
	switch {
	case err != nil: // the error may contain a password
		return nil, exit.Usagef("%s is not a URL; write %s, with special characters of the password percent-encoded", flag, example)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, exit.Usagef("%s; write %s", flag, example)
	case u.RawQuery != "" && !authoritiesOnly(u) || u.Fragment != "":
		return nil, exit.Usagef("%s must not have a # or parameters other than cacertfile of https; write %s", flag, example)
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/api")
	return u, nil
}

// authoritiesOnly reports whether the only parameter of a URL is cacertfile, and can have an effect.
func authoritiesOnly(u *url.URL) bool {
	q, err := url.ParseQuery(u.RawQuery)
	return err == nil && len(q) == 1 && q.Get("cacertfile") != "" && u.Scheme == "https"
}

// VirtualHost returns the virtual host of a broker URL. In the URI specification, "amqp://host/" means the virtual host
// "", but users expect "/".
func VirtualHost(rawURL string) string {
	if u, err := url.Parse(rawURL); err == nil && len(u.Path) > 1 {
		return strings.TrimPrefix(u.Path, "/")
	}
	return "/"
}

// Management returns the management API at rawURL, with the user and the password in the URL, or guest by default.
func Management(flag, rawURL, vhost string) (*mgmtapi.API, error) {
	u, err := managementURL(flag, rawURL)
	if err != nil {
		return nil, err
	}
	m := &mgmtapi.API{VHost: vhost, User: Guest, Password: Guest}
	if u.User != nil {
		m.User = u.User.Username()
		m.Password, _ = u.User.Password()
	}
	if path := u.Query().Get("cacertfile"); path != "" {
		trusted, err := pemfile.Authorities(path)
		if err != nil {
			return nil, exit.Usagef("%s: %w", flag, err)
		}
		m.Client = &http.Client{Timeout: mgmtapi.Timeout, Transport: pemfile.Transport(trusted)}
	}
	u.User, u.RawQuery = nil, ""
	m.URL = u.String()
	return m, nil
}
