package management

import "github.com/reprisemq/reprise/broker/internal/access"

func (h *Handler) permissions() {
	h.handle("GET /api/permissions", administrator, func(c *call) (any, error) {
		return c.permissionsWhere(func(access.Permission) bool { return true }), nil
	})
	h.handle("GET /api/vhosts/{vhost}/permissions", administrator, func(c *call) (any, error) {
		v, err := c.vhost()
		if err != nil {
			return nil, err
		}
		return c.permissionsWhere(func(p access.Permission) bool { return p.VHost == v.Name() }), nil
	})
	h.handle("GET /api/permissions/{vhost}/{user}", administrator, func(c *call) (any, error) {
		if found := c.permission(); len(found) > 0 {
			return found[0], nil
		}
		return nil, notFound
	})
	h.handle("PUT /api/permissions/{vhost}/{user}", administrator, putPermission)
	h.handle("DELETE /api/permissions/{vhost}/{user}", administrator, func(c *call) (any, error) {
		if len(c.permission()) == 0 {
			return nil, notFound
		}
		c.node.Access.DeletePermission(c.PathValue("user"), c.PathValue("vhost"))
		return done{}, nil
	})
}

// permissionInfo is what a user may do in a virtual host, in the API and in definitions.
type permissionInfo struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

func (c *call) permissionsWhere(wanted func(access.Permission) bool) listOf[permissionInfo] {
	all := listOf[permissionInfo]{}
	for _, p := range c.node.Access.Permissions() {
		if wanted(p) {
			all = append(all, permissionInfo(p))
		}
	}
	return all
}

// permission returns the one of the path, or none.
func (c *call) permission() listOf[permissionInfo] {
	return c.permissionsWhere(func(p access.Permission) bool {
		return p.VHost == c.PathValue("vhost") && p.User == c.PathValue("user")
	})
}

type permissionSettings struct {
	Configure *string `json:"configure"`
	Write     *string `json:"write"`
	Read      *string `json:"read"`
}

func putPermission(c *call) (any, error) {
	var s permissionSettings
	if err := c.decode(&s); err != nil {
		return nil, err
	}
	var missing []string
	for _, key := range []struct {
		name  string
		value *string
	}{{"configure", s.Configure}, {"write", s.Write}, {"read", s.Read}} {
		if key.value == nil {
			missing = append(missing, key.name)
		}
	}
	if missing != nil {
		return nil, missingKeys(missing...)
	}
	user, vhost := c.PathValue("user"), c.PathValue("vhost")
	_, known := c.node.Access.User(user)
	if c.node.VHost(vhost) == nil || !known {
		return nil, badRequest("vhost_or_user_not_found")
	}
	existed := len(c.permission()) > 0
	err := c.node.Access.SetPermission(access.Permission{
		User: user, VHost: vhost, Configure: *s.Configure, Write: *s.Write, Read: *s.Read,
	})
	switch {
	case err != nil:
		return nil, err
	case existed:
		return done{}, nil
	}
	return created{}, nil
}
