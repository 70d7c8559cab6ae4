package amqpconn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// DefaultRefresh is the interval of reading a password file again while a connection is open.
	DefaultRefresh = time.Minute

	// MaxRefused is the time after which a link gives up if the broker only refuses credentials that nothing can change.
	MaxRefused = 15 * time.Minute
)

// withLogin returns the address with the current user and password. It asks for them for each connection, because they may
// have been rotated.
func (l *Link) withLogin(ctx context.Context, a address) (address, error) {
	switch {
	case a.login() == "":
		return a, nil
	case l.cfg.Credentials != nil:
		user, password, err := l.cfg.Credentials(ctx)
		if err != nil {
			return a, fmt.Errorf("get credentials: %w", err)
		}
		a.Username, a.Password = user, password
	case a.passwordFile != "":
		password, err := readPassword(a.passwordFile)
		if err != nil {
			return a, &filesError{err}
		}
		a.Password = password
	}
	return a, nil
}

// setUser stores the user of an attempt to connect.
func (l *Link) setUser(a address) {
	if a.login() == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.user = a.Username
}

// readPassword returns the content of a file without the line break at its end.
func readPassword(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	password := strings.TrimRight(string(content), "\r\n")
	if password == "" {
		return "", fmt.Errorf("password file %s is empty", path)
	}
	return password, nil
}

// isFixed reports whether the credentials of an address cannot change while the program runs.
func (l *Link) isFixed(a address) bool {
	return a.login() != "" && l.cfg.Credentials == nil && a.passwordFile == ""
}

// isLoginRefused reports whether the broker has refused the user or the password, or has closed the connection instead, as
// brokers do for such clients. Only if this is the only result for a long time, it is certain.
func isLoginRefused(err error) bool {
	refusal, ok := errors.AsType[*amqp.Error](err)
	return ok && refusal.Code == amqp.AccessRefused
}

// refreshes returns the interval of refreshing the credentials of a connection, or 0.
func (l *Link) refreshes(a address) time.Duration {
	switch {
	case a.login() == "", l.isFixed(a):
		return 0
	case l.cfg.Credentials == nil && l.cfg.Refresh == 0:
		return DefaultRefresh
	}
	return l.cfg.Refresh
}

// refresh passes changed passwords to the broker, until ctx is canceled, because a broker refuses requests with an expired
// token. https://www.rabbitmq.com/docs/oauth2#token-expiration
func (l *Link) refresh(ctx context.Context, c *Conn, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := l.refreshOnce(ctx, c); err != nil && ctx.Err() == nil {
			c.log.Warn("credentials not refreshed", "error", err)
		}
	}
}

func (l *Link) refreshOnce(ctx context.Context, c *Conn) error {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout, fmt.Errorf("timed out after %s", handshakeTimeout))
	defer cancel()
	a, err := l.withLogin(ctx, c.login)
	if err != nil || a.Username != c.login.Username || a.Password == c.login.Password {
		return err // another user needs another connection
	}
	err = call(ctx, l.tasks, func() error {
		return translated(c.askConnection(func() error { return c.raw.updateSecret(a.Password) }))
	}, nil)
	if err != nil {
		return err
	}
	c.login = a
	c.log.Info("credentials refreshed")
	return nil
}
