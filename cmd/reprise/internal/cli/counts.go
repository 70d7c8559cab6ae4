package cli

import (
	"context"
	"net/url"
	"strings"

	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// managementURL parses the URL of a management API. The URL may contain a user and a password, and the
// parameter cacertfile, as the URL of a broker.
func managementURL(flag, raw string) (*url.URL, error) {
	const example = "http://user:password@host:15672"
	u, err := url.Parse(raw)
	switch {
	case err != nil: // the error may contain a password
		return nil, usagef("%s is not a URL; write %s, with special characters of the password percent-encoded", flag, example)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, usagef("%s; write %s", flag, example)
	case u.RawQuery != "" && !authoritiesOnly(u) || u.Fragment != "":
		return nil, usagef("%s must not have a # or parameters other than cacertfile of https; write %s", flag, example)
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/api")
	return u, nil
}

// authoritiesOnly reports whether the only parameter of a URL is cacertfile, and can have an effect.
func authoritiesOnly(u *url.URL) bool {
	q, err := url.ParseQuery(u.RawQuery)
	return err == nil && len(q) == 1 && q.Get("cacertfile") != "" && u.Scheme == "https"
}

// virtualHost returns the virtual host of a broker URL. In the URI specification, "amqp://host/" means the virtual host
// "", but users expect "/".
func virtualHost(rawURL string) string {
	if u, err := url.Parse(rawURL); err == nil && len(u.Path) > 1 {
		return strings.TrimPrefix(u.Path, "/")
	}
	return "/"
}

// queueCounts returns the depths of the queues in a virtual host, from a management API.
func queueCounts(ctx context.Context, rawURL, vhost string) (map[string]graph.Count, error) {
	m, err := consoleManagement("--management", rawURL, vhost)
	if err != nil {
		return nil, err
	}
	api := mgmtapi.API{URL: m.URL, User: m.User, Password: m.Password, Client: m.Client}
	queues, err := api.Queues(ctx, vhost)
	if err != nil {
		return nil, err
	}
	counts := map[string]graph.Count{}
	for _, q := range queues {
		if q.Ready.Known && q.Unacked.Known {
			counts[q.Name] = graph.Count{Ready: q.Ready.Value, Unacked: q.Unacked.Value}
		}
	}
	return counts, nil
}
