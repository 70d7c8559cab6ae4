package access

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/pcre"
)

// TopicPermission limits the routing keys with which a user publishes to a topic exchange or binds to it, in addition to the
// permissions for the exchange (https://www.rabbitmq.com/docs/access-control#topic-authorisation). In the expressions, {username}
// and {vhost} stand for the names. An empty expression permits only an empty key. A user without a topic permission for
// an exchange may use all keys.
type TopicPermission struct {
	User     string `json:"user"`
	VHost    string `json:"vhost"`
	Exchange string `json:"exchange"`
	Write    string `json:"write"`
	Read     string `json:"read"`
}

// Topics contains the topic permissions of a user in a virtual host, by exchange. It does not change.
type Topics map[string]*Keys

// Keys are the routing keys that a topic permission permits.
type Keys struct {
	TopicPermission
	write, read *pcre.Regexp
}

// Permit reports whether a key is permitted for an operation.
func (k *Keys) Permit(op Operation, key string) bool {
	pattern := k.write
	if op == Read {
		pattern = k.read
	}
	return pattern != nil && pattern.MatchString(key)
}

// compileKeys compiles the expressions. Invalid expressions are in the error, and permit nothing.
func compileKeys(p TopicPermission) (k *Keys, err error) {
	names := strings.NewReplacer("{username}", quote(p.User), "{vhost}", quote(p.VHost))
	k = &Keys{TopicPermission: p}
	for _, e := range []struct {
		op      Operation
		pattern string
		into    **pcre.Regexp
	}{{Write, p.Write, &k.write}, {Read, p.Read, &k.read}} {
		_, wrong := pcre.Compile(e.pattern, false)
		if wrong == nil {
			*e.into, wrong = pcre.Compile(cmp.Or(names.Replace(e.pattern), "^$"), false)
		}
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("%v permission %q is not a regular expression: %w", e.op, e.pattern, wrong))
		}
	}
	return k, err
}

// quote quotes a name for an expression, also within a class such as [{username}].
func quote(name string) string { return strings.ReplaceAll(regexp.QuoteMeta(name), "-", `\-`) }

// SetTopicPermission sets the topic permission of a user for an exchange.
func (c *Control) SetTopicPermission(p TopicPermission) error {
	keys, err := compileKeys(p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.users[p.User]; !known {
		return ErrUnknownUser
	}
	c.addTopic(keys)
	c.registry.Set(topicDocument{p.Write, p.Read}, topicKind, p.User, p.VHost, p.Exchange)
	return nil
}

// addTopic adds a topic permission. It replaces the map, because sessions read the old map.
func (c *Control) addTopic(keys *Keys) {
	g := grantee{keys.User, keys.VHost}
	topics := maps.Clone(c.topics[g])
	if topics == nil {
		topics = make(Topics)
	}
	topics[keys.Exchange] = keys
	c.topics[g] = topics
	c.generation.Add(1)
}

// DeleteTopicPermissions removes the topic permissions of a user in a virtual host, for an exchange or, if it is nil, for
// all exchanges.
func (c *Control) DeleteTopicPermissions(user, vhost string, exchange *string) {
	c.deleteTopicsWhere(func(p TopicPermission) bool {
		return p.User == user && p.VHost == vhost && (exchange == nil || p.Exchange == *exchange)
	})
}

// DeleteExchange removes the topic permissions of all users for an exchange.
func (c *Control) DeleteExchange(vhost, exchange string) {
	c.deleteTopicsWhere(func(p TopicPermission) bool { return p.VHost == vhost && p.Exchange == exchange })
}

// KeepTopics removes the topic permissions for exchanges that do not exist.
func (c *Control) KeepTopics(exists func(vhost, exchange string) bool) {
	c.deleteTopicsWhere(func(p TopicPermission) bool { return !exists(p.VHost, p.Exchange) })
}

func (c *Control) deleteTopicsWhere(which func(TopicPermission) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleteTopics(which)
}

func (c *Control) deleteTopics(which func(TopicPermission) bool) {
	for g, topics := range c.topics {
		kept := maps.Clone(topics)
		maps.DeleteFunc(kept, func(_ string, k *Keys) bool {
			gone := which(k.TopicPermission)
			if gone {
				c.registry.Delete(topicKind, k.User, k.VHost, k.Exchange)
			}
			return gone
		})
		if len(kept) == len(topics) {
			continue
		}
		if c.topics[g] = kept; len(kept) == 0 {
			delete(c.topics, g)
		}
		c.generation.Add(1)
	}
}

// Topics returns the topic permissions of a user in a virtual host. Nil means that the user may use all keys.
func (c *Control) Topics(user, vhost string) Topics {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.topics[grantee{user, vhost}]
}

// TopicPermissions returns the topic permissions for which wanted returns true, sorted by virtual host, user and exchange.
func (c *Control) TopicPermissions(wanted func(TopicPermission) bool) []TopicPermission {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := []TopicPermission{}
	for _, topics := range c.topics {
		for _, k := range topics {
			if wanted(k.TopicPermission) {
				all = append(all, k.TopicPermission)
			}
		}
	}
	slices.SortFunc(all, func(a, b TopicPermission) int {
		return cmp.Or(cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.User, b.User), cmp.Compare(a.Exchange, b.Exchange))
	})
	return all
}
