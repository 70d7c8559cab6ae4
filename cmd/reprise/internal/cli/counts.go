package cli

import (
	"context"
	"net/url"
	"strings"

	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// managementURL reads the URL of a management API, in which the user stands.
func managementURL(flag, raw string) (*url.URL, error) {
	const example = "http://user:password@host:15672"
	u, err := url.Parse(raw)
	switch {
	case err != nil: // which may quote a password
		return nil, usagef("%s is no URL: write %s, with special characters of the password percent-encoded", flag, example)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, usagef("%s: write %s", flag, example)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, usagef("%s has parameters or a #, which mean nothing there: write %s", flag, example)
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/api")
	return u, nil
}

// virtualHost returns the virtual host of a broker's URL. By the URI specification
// "amqp://host/" names the virtual host "", but people who write it mean "/".
func virtualHost(rawURL string) string {
	if u, err := url.Parse(rawURL); err == nil && len(u.Path) > 1 {
		return strings.TrimPrefix(u.Path, "/")
	}
	return "/"
}

// queueCounts asks a management API how many messages are in the queues of a
// virtual host.
func queueCounts(ctx context.Context, rawURL, vhost string) (map[string]graph.Count, error) {
	m, err := consoleManagement("--management", rawURL, vhost)
	if err != nil {
		return nil, err
	}
	api := mgmtapi.API{URL: m.URL, User: m.User, Password: m.Password}
	var queues []struct {
		Name    string `json:"name"`
		Ready   int64  `json:"messages_ready"`
		Unacked int64  `json:"messages_unacknowledged"`
	}
	if err := api.Get(ctx, "queues/"+url.PathEscape(vhost)+"?columns=name,messages_ready,messages_unacknowledged", &queues); err != nil {
		return nil, err
	}
	counts := map[string]graph.Count{}
	for _, q := range queues {
		counts[q.Name] = graph.Count{Ready: q.Ready, Unacked: q.Unacked}
	}
	return counts, nil
}
