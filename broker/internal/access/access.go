// Package access implements authentication and permissions. Passwords are stored as hashes. In each virtual host, a
// user can have three regular expressions, for configure, write and read operations, which match names of queues and
// exchanges (https://www.rabbitmq.com/docs/access-control).
package access

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/broker/internal/quota"
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/internal/bounded"
	"github.com/reprisemq/reprise/internal/pcre"
	"github.com/reprisemq/reprise/internal/throttle"
)

// User is a user of the broker.
type User struct {
	Name string
	Hash Hash
	Tags []string // roles in the management API, such as administrator or monitoring
	// Limits on the connections and channels of the user. SetUser keeps limits that it does not set.
	Limits quota.Limits
}

// Permission contains the permissions of a user in a virtual host. An empty expression permits nothing.
type Permission struct {
	User, VHost            string
	Configure, Write, Read string
}

// Operation is a kind of access to a queue or an exchange.
type Operation uint8

// Operations (https://www.rabbitmq.com/docs/access-control#authorisation).
const (
	Configure Operation = iota
	Write
	Read
)

func (op Operation) String() string { return [...]string{"configure", "write", "read"}[op] }

// ErrUnknownUser is returned if the user does not exist.
var ErrUnknownUser = errors.New("user not found")

// Control stores users and permissions. Its methods are safe for concurrent use.
type Control struct {
	generation atomic.Uint64
	registry   *registry.Registry // saves all changes except temporary users, while mu is held
	guesses    *throttle.Throttle
	known      knownUsers
	delayed    delayedLogins

	mu          sync.RWMutex
	users       map[string]User
	permissions map[grantee]compiledPermission
	topics      map[grantee]Topics
}

type grantee struct{ user, vhost string }

type compiledPermission struct {
	Permission
	patterns [3]*pcre.Regexp // indexed by operation
}

// New returns a Control that has no users and does not save changes.
func New() *Control {
	c := &Control{
		users: make(map[string]User), permissions: make(map[grantee]compiledPermission),
		topics:  make(map[grantee]Topics),
		guesses: throttle.New(time.Now, maxDelay), delayed: delayedLogins{at: make(map[netip.Prefix]int)},
		known: knownUsers{addresses: bounded.New[userAddress, time.Time](maxKnown)},
	}
	c.generation.Add(1)
	return c
}

// Generation returns a number that changes whenever a permission changes, so that callers can cache results of Allowed.
// The number is never zero.
func (c *Control) Generation() uint64 { return c.generation.Load() }

// SetUser adds a user, or replaces the user with the same name, except for limits that are not in u.
func (c *Control) SetUser(u User) error {
	if u.Name == "" {
		return errors.New("user name must not be empty")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u.Limits = merge(c.users[u.Name].Limits, u.Limits)
	c.users[u.Name] = u
	c.saveUser(u)
	return nil
}

// merge returns the union of two sets of limits. The second set takes precedence.
func merge(a, b quota.Limits) quota.Limits {
	all := make(quota.Limits, len(a)+len(b))
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// Limits returns the limits of a user. The caller must not change the map.
func (c *Control) Limits(user string) quota.Limits {
	u, _ := c.User(user)
	return u.Limits
}

// SetLimit sets a limit of a user.
func (c *Control) SetLimit(user, name string, limit int64) error {
	return c.changeLimits(user, func(l quota.Limits) { l[name] = limit })
}

// ClearLimit removes a limit of a user. The name "all" removes all limits.
func (c *Control) ClearLimit(user, name string) error {
	return c.changeLimits(user, func(l quota.Limits) {
		if delete(l, name); name == "all" {
			clear(l)
		}
	})
}

func (c *Control) changeLimits(user string, change func(quota.Limits)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, known := c.users[user]
	if !known {
		return ErrUnknownUser
	}
	u.Limits = merge(u.Limits, nil) // other callers may read the old map
	change(u.Limits)
	c.users[user] = u
	c.saveUser(u)
	return nil
}

// AddTemporary adds a user with all permissions in a virtual host. It does not save the user, so the user exists only
// until the process exits.
func (c *Control) AddTemporary(u User, vhost string) error {
	p := Permission{User: u.Name, VHost: vhost, Configure: ".*", Write: ".*", Read: ".*"}
	granted, err := compile(p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users[u.Name] = u
	c.permissions[grantee{u.Name, vhost}] = granted
	c.generation.Add(1)
	return nil
}

// DeleteUser removes a user and the user's permissions.
func (c *Control) DeleteUser(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.users[name]; !known {
		return ErrUnknownUser
	}
	delete(c.users, name)
	c.registry.Delete(userKind, name)
	c.deletePermissions(func(g grantee) bool { return g.user == name })
	c.deleteTopics(func(p TopicPermission) bool { return p.User == name })
	return nil
}

// User returns the user with the given name.
func (c *Control) User(name string) (User, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	u, known := c.users[name]
	return u, known
}

// Users returns all users, sorted by name.
func (c *Control) Users() []User {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.SortedFunc(maps.Values(c.users), func(a, b User) int { return cmp.Compare(a.Name, b.Name) })
}

// Authenticate reports whether the password of the user is correct. It takes the same time whether the user exists or not.
func (c *Control) Authenticate(name, password string) bool {
	u, known := c.User(name)
	return u.Hash.Matches(password) && known
}

// SetPermission sets the permissions of a user in a virtual host.
func (c *Control) SetPermission(p Permission) error {
	granted, err := compile(p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.users[p.User]; !known {
		return ErrUnknownUser
	}
	c.permissions[grantee{p.User, p.VHost}] = granted
	c.savePermission(p)
	c.generation.Add(1)
	return nil
}

// compile compiles the expressions. Invalid expressions are in the error, and permit nothing.
func compile(p Permission) (c compiledPermission, err error) {
	c.Permission = p
	for op, pattern := range [...]string{Configure: p.Configure, Write: p.Write, Read: p.Read} {
		if pattern == "" {
			continue // an empty expression does not match any name
		}
		re, wrong := pcre.Compile(pattern, false)
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("%v permission %q is not a regular expression: %w", Operation(op), pattern, wrong))
			continue
		}
		c.patterns[op] = re
	}
	return c, err
}

// DeletePermission removes the permissions of a user in a virtual host.
func (c *Control) DeletePermission(user, vhost string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deletePermissions(func(g grantee) bool { return g == grantee{user, vhost} })
}

// DeleteVHost removes all permissions in a virtual host.
func (c *Control) DeleteVHost(vhost string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deletePermissions(func(g grantee) bool { return g.vhost == vhost })
	c.deleteTopics(func(p TopicPermission) bool { return p.VHost == vhost })
}

func (c *Control) deletePermissions(which func(grantee) bool) {
	for g := range c.permissions {
		if which(g) {
			delete(c.permissions, g)
			c.registry.Delete(permissionKind, g.user, g.vhost)
		}
	}
	c.generation.Add(1)
}

// Permissions returns all permissions, sorted by user and virtual host.
func (c *Control) Permissions() []Permission {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []Permission
	for _, p := range c.permissions {
		all = append(all, p.Permission)
	}
	slices.SortFunc(all, func(a, b Permission) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.VHost, b.VHost))
	})
	return all
}

// Permission returns the permissions of a user in a virtual host. It returns false if the user has no permissions there.
func (c *Control) Permission(user, vhost string) (Permission, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p, known := c.permissions[grantee{user, vhost}]
	return p.Permission, known
}

// MayEnter reports whether a user has any permission in a virtual host.
func (c *Control) MayEnter(user, vhost string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, granted := c.permissions[grantee{user, vhost}]
	return granted
}

// Allowed reports whether a user has the permission for an operation on the queue or exchange with the given name.
func (c *Control) Allowed(user, vhost string, op Operation, name string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	re := c.permissions[grantee{user, vhost}].patterns[op]
	return re != nil && re.MatchString(name)
}
