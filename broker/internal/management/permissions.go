package management

import "github.com/reprisemq/reprise/broker/internal/access"

func (h *Handler) permissions() {
	h.handle("GET /api/permissions", administrator, func(c *call) (any, error) {
		return listPermissions(c.node.Access, anyPermission), nil
	})
	h.handle("GET /api/vhosts/{vhost}/permissions", administrator, func(c *call) (any, error) {
		v, err := c.vhost()
		if err != nil {
			return nil, err
		}
		return listPermissions(c.node.Access, func(p access.Permission) bool { return p.VHost == v.Name() }), nil
	})
	h.handle("GET /api/permissions/{vhost}/{user}", administrator, func(c *call) (any, error) {
		p, known := c.permission()
		if !known {
			return nil, notFound
		}
		return describePermission(p), nil
	})
	h.handle("PUT /api/permissions/{vhost}/{user}", administrator, putPermission)
	h.handle("DELETE /api/permissions/{vhost}/{user}", administrator, func(c *call) (any, error) {
		if _, known := c.permission(); !known {
			return nil, notFound
		}
		c.node.Access.DeletePermission(c.PathValue("user"), c.PathValue("vhost"))
		return done{}, nil
	})
}

// describePermission returns a permission in the format that the API and definitions use.
func describePermission(p access.Permission) fields {
	return fields{"user": p.User, "vhost": p.VHost, "configure": p.Configure, "write": p.Write, "read": p.Read}
}

func listPermissions(a *access.Control, wanted func(access.Permission) bool) list {
	return func(yield func(element) bool) {
		for _, p := range a.Permissions() {
			if wanted(p) && !yield(func() fields { return describePermission(p) }) {
				return
			}
		}
	}
}

func anyPermission(access.Permission) bool { return true }

// permission returns the permission in the path.
func (c *call) permission() (access.Permission, bool) {
	return c.node.Access.Permission(c.PathValue("user"), c.PathValue("vhost"))
}

func putPermission(c *call) (any, error) {
	var s struct {
		Configure string `json:"configure"`
		Write     string `json:"write"`
		Read      string `json:"read"`
	}
	if err := c.decode(&s, "configure", "write", "read"); err != nil {
		return nil, err
	}
	if err := c.granteeExists(); err != nil {
		return nil, err
	}
	_, existed := c.permission()
	return stored(existed), c.node.Access.SetPermission(access.Permission{
		User: c.PathValue("user"), VHost: c.PathValue("vhost"), Configure: s.Configure, Write: s.Write, Read: s.Read,
	})
}

// granteeExists returns the error of a request that grants something to a missing user, or in a missing virtual host.
func (c *call) granteeExists() error {
	if c.node.VHost(c.PathValue("vhost")) == nil || userExists(c) != nil {
		return badRequest("vhost_or_user_not_found")
	}
	return nil
}
