package management

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/access"
)

func (h *Handler) users() {
	h.handle("GET /api/users", administrator, func(c *call) (any, error) { return listUsers(c.node.Access.Users), nil })
	h.handle("GET /api/users/without-permissions", administrator, func(c *call) (any, error) {
		return listUsers(func() []access.User {
			permitted := make(map[string]bool)
			for _, p := range c.node.Access.Permissions() {
				permitted[p.User] = true
			}
			return slices.DeleteFunc(c.node.Access.Users(), func(u access.User) bool { return permitted[u.Name] })
		}), nil
	})
	h.handle("GET /api/users/{user}", administrator, func(c *call) (any, error) {
		u, known := c.node.Access.User(c.PathValue("user"))
		if !known {
			return nil, notFound
		}
		return describeUser(u), nil
	})
	h.handle("PUT /api/users/{user}", administrator, putUser)
	h.handle("DELETE /api/users/{user}", administrator, func(c *call) (any, error) {
		if c.node.Access.DeleteUser(c.PathValue("user")) != nil {
			return nil, notFound
		}
		return done{}, nil
	})
	h.handle("POST /api/users/bulk-delete", administrator, deleteUsers)
	h.handle("GET /api/users/{user}/permissions", administrator, func(c *call) (any, error) {
		name := c.PathValue("user")
		return listPermissions(c.node.Access, func(p access.Permission) bool { return p.User == name }), userExists(c)
	})
}

const hashing = "rabbit_password_hashing_sha256"

// describeUser returns a user in the format that the API and definitions use.
func describeUser(u access.User) fields {
	return fields{
		"name": u.Name, "password_hash": u.Hash.String(), "hashing_algorithm": hashing, "tags": tagList(u.Tags), "limits": withLimits(u.Limits),
	}
}

func listUsers(users func() []access.User) pages {
	return func(yield func(element) bool) {
		for _, u := range users() {
			if !yield(func() fields { return describeUser(u) }) {
				return
			}
		}
	}
}

// userSettings is the body of a request that creates or changes a user. It is also part of a user in definitions.
type userSettings struct {
	Password         *string         `json:"password"`
	PasswordHash     *string         `json:"password_hash"`
	HashingAlgorithm string          `json:"hashing_algorithm"`
	Tags             *tags           `json:"tags"`
	Limits           json.RawMessage `json:"limits,omitempty"`
}

// tags is a list of tags. In JSON, it may also be a comma-separated string, as before RabbitMQ 3.9.
type tags []string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *tags) UnmarshalJSON(b []byte) error {
	var list []string
	var text string
	switch {
	case json.Unmarshal(b, &list) == nil:
	case json.Unmarshal(b, &text) == nil:
		list = strings.Split(text, ",")
	default:
		return badRequest("tags must be a list of strings")
	}
	*t = tags{}
	for _, tag := range list {
		if tag = strings.TrimSpace(tag); tag != "" {
			*t = append(*t, tag)
		}
	}
	return nil
}

// user returns a user with the settings. If the settings contain neither a password nor a hash, the user cannot log
// in with a password.
func (s *userSettings) user(name string) (access.User, error) {
	u := access.User{Name: name}
	switch {
	case s.Tags == nil:
		return u, badRequest("tags_not_present")
	case s.Password != nil && s.PasswordHash != nil:
		return u, badRequest("both_password_and_password_hash_are_provided")
	}
	u.Tags = *s.Tags
	if s.Limits != nil {
		var problems []string
		if u.Limits, problems = parseUserLimits(s.Limits); problems != nil {
			return u, badRequest(strings.Join(problems, "; "))
		}
	}
	switch {
	case s.Password != nil && *s.Password != "":
		u.Hash = access.HashPassword(*s.Password)
	case s.PasswordHash != nil && *s.PasswordHash != "":
		if s.HashingAlgorithm != "" && s.HashingAlgorithm != hashing {
			return u, badRequest("hashing_algorithm must be " + hashing + ": got " + s.HashingAlgorithm)
		}
		var err error
		if u.Hash, err = access.ParseHash(*s.PasswordHash); err != nil {
			return u, err
		}
	}
	return u, nil
}

func putUser(c *call) (any, error) {
	var s userSettings
	if err := c.decode(&s); err != nil {
		return nil, err
	}
	name := c.PathValue("user")
	u, err := s.user(name)
	if err != nil {
		return nil, err
	}
	_, existed := c.node.Access.User(name)
	return stored(existed), c.node.Access.SetUser(u)
}

func deleteUsers(c *call) (any, error) {
	var body struct {
		Users []string `json:"users"`
	}
	if err := c.decode(&body); err != nil {
		return nil, err
	}
	for _, name := range body.Users {
		_ = c.node.Access.DeleteUser(name) // ignores users that do not exist
	}
	return done{}, nil
}
