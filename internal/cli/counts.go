package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/graph"
)

// managementTimeout is how long a management API has to answer.
const managementTimeout = 15 * time.Second

// managementURL reads the URL of a management API, in which the user stands.
func managementURL(flag, raw string) (*url.URL, error) {
	const example = "http://user:password@host:15672"
	u, err := url.Parse(raw)
	switch {
	case err != nil: // which may quote a password
		return nil, usagef("%s is no URL: write %s, with special characters of the password percent-encoded", flag, example)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, usagef("%s: write %s", flag, example)
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/api")
	return u, nil
}

// virtualHost is that of a broker's URL. "amqp://host/" names "" to the letter, and
// "/" to whoever writes it.
func virtualHost(rawURL string) string {
	if u, err := url.Parse(rawURL); err == nil && len(u.Path) > 1 {
		return strings.TrimPrefix(u.Path, "/")
	}
	return "/"
}

// queueCounts asks a management API how many messages are in the queues of a
// virtual host.
func queueCounts(ctx context.Context, rawURL, vhost string) (map[string]graph.Count, error) {
	u, err := managementURL("--management", rawURL)
	if err != nil {
		return nil, err
	}
	user := u.User
	u.User = nil
	ctx, cancel := context.WithTimeout(ctx, managementTimeout)
	defer cancel()
	endpoint := u.String() + "/api/queues/" + url.PathEscape(vhost) + "?columns=name,messages_ready,messages_unacknowledged"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
	if err != nil {
		return nil, err
	}
	password, _ := user.Password()
	r.SetBasicAuth(user.Username(), password)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err
		}
		return nil, fmt.Errorf("the management API at %s does not answer: %w", u.Host, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the management API at %s answers %s", u.Host, answer.Status)
	}
	var queues []struct {
		Name    string `json:"name"`
		Ready   int64  `json:"messages_ready"`
		Unacked int64  `json:"messages_unacknowledged"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, 64<<20)).Decode(&queues); err != nil {
		return nil, fmt.Errorf("the management API at %s answers something else than a list of queues: %w", u.Host, err)
	}
	counts := map[string]graph.Count{}
	for _, q := range queues {
		counts[q.Name] = graph.Count{Ready: q.Ready, Unacked: q.Unacked}
	}
	return counts, nil
}
