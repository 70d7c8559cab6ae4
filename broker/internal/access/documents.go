package access

import (
	"log/slog"

	"github.com/reprisemq/reprise/broker/internal/quota"
	"github.com/reprisemq/reprise/broker/internal/registry"
)

// Kinds of documents in the registry. Each comment lists the components of the document's name.
const (
	userKind       = "user"            // name
	permissionKind = "permission"      // user, virtual host
	topicKind      = "topicpermission" // user, virtual host, exchange
)

type userDocument struct {
	Hash   []byte       `json:"hash,omitempty"` // empty if the user cannot log in with a password
	Tags   []string     `json:"tags,omitempty"`
	Limits quota.Limits `json:"limits,omitempty"`
}

type permissionDocument struct {
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

type topicDocument struct {
	Write string `json:"write"`
	Read  string `json:"read"`
}

func (c *Control) saveUser(u User) {
	c.registry.Set(userDocument{u.Hash.saltAndSum, u.Tags, u.Limits}, userKind, u.Name)
}

func (c *Control) savePermission(p Permission) {
	c.registry.Set(permissionDocument{p.Configure, p.Write, p.Read}, permissionKind, p.User, p.VHost)
}

// Load returns a Control with the users and permissions in the registry. The Control saves changes in the registry.
func Load(r *registry.Registry, log *slog.Logger) (*Control, error) {
	c := New()
	for d, err := range registry.All[userDocument](r, userKind, 1) {
		if err != nil {
			return nil, err
		}
		hash, err := newHash(d.Value.Hash)
		if err != nil {
			return nil, d.Damaged(err)
		}
		name := d.Names[0]
		c.users[name] = User{Name: name, Hash: hash, Tags: d.Value.Tags, Limits: d.Value.Limits}
	}
	for d, err := range registry.All[permissionDocument](r, permissionKind, 2) {
		if err != nil {
			return nil, err
		}
		user, vhost := d.Names[0], d.Names[1]
		if _, known := c.users[user]; !known {
			r.Delete(permissionKind, user, vhost) // the previous process exited while it was deleting the user
			continue
		}
		kept := d.Value
		// An earlier version may have accepted an expression that is not valid today. It then permits nothing.
		granted, err := compile(Permission{User: user, VHost: vhost, Configure: kept.Configure, Write: kept.Write, Read: kept.Read})
		if err != nil {
			log.Error("invalid permission permits nothing", "user", user, "vhost", vhost, "error", err)
		}
		c.permissions[grantee{user, vhost}] = granted
	}
	for d, err := range registry.All[topicDocument](r, topicKind, 3) {
		if err != nil {
			return nil, err
		}
		if _, known := c.users[d.Names[0]]; !known {
			r.Delete(topicKind, d.Names...)
			continue
		}
		p := TopicPermission{User: d.Names[0], VHost: d.Names[1], Exchange: d.Names[2], Write: d.Value.Write, Read: d.Value.Read}
		keys, err := compileKeys(p)
		if err != nil {
			log.Error("invalid topic permission permits nothing", "user", p.User, "vhost", p.VHost, "exchange", p.Exchange, "error", err)
		}
		c.addTopic(keys)
	}
	c.registry = r
	return c, nil
}
