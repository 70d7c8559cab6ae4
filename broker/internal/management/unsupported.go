package management

import "cmp"

// addUnsupported adds the endpoints for unsupported objects. Their lists are empty, except that the global parameter
// cluster_tags exists. Requests to get or delete any other object return 404, except requests to delete a limit. Requests
// to create an object fail, and requests whose path contains a missing virtual host or user also fail.
func (h *Handler) addUnsupported() {
	h.handle("GET /api/parameters", administrator, nothing)
	h.handle("GET /api/parameters/{component}", administrator, nothing)
	h.handle("GET /api/parameters/{component}/{vhost}", administrator, nothingIn(vhostExists))
	h.handle("GET /api/parameters/{component}/{vhost}/{name}", administrator, missing)
	h.handle("DELETE /api/parameters/{component}/{vhost}/{name}", administrator, missing)
	h.handle("PUT /api/parameters/{component}/{vhost}/{name}", administrator, unavailable("parameters", vhostExistsToChange))

	h.handle("GET /api/topic-permissions", administrator, nothing)
	h.handle("GET /api/users/{user}/topic-permissions", administrator, nothingIn(userExists))
	h.handle("GET /api/vhosts/{vhost}/topic-permissions", administrator, nothingIn(vhostExists))
	h.handle("GET /api/topic-permissions/{vhost}/{user}", administrator, missing)
	h.handle("DELETE /api/topic-permissions/{vhost}/{user}", administrator, missing)
	h.handle("PUT /api/topic-permissions/{vhost}/{user}", administrator, unavailable("topic-permissions", func(c *call) error {
		if cmp.Or(vhostExists(c), userExists(c)) != nil {
			return badRequest("vhost_or_user_not_found")
		}
		return nil
	}))

	// A request to delete a limit succeeds, because the limit does not exist.
	h.handle("GET /api/vhost-limits", anyone, nothing)
	h.handle("GET /api/vhost-limits/{vhost}", anyone, nothingIn(vhostExists))
	h.handle("DELETE /api/vhost-limits/{vhost}/{name}", administrator, func(c *call) (any, error) { return done{}, vhostExistsToChange(c) })
	h.handle("PUT /api/vhost-limits/{vhost}/{name}", administrator, unavailable("vhost-limits", vhostExistsToChange))
	h.handle("GET /api/user-limits", administrator, nothing)
	h.handle("GET /api/user-limits/{user}", administrator, nothingIn(userExists))
	h.handle("DELETE /api/user-limits/{user}/{name}", administrator, func(c *call) (any, error) {
		if userExists(c) != nil {
			return nil, vhostNotFound // RabbitMQ returns this error
		}
		return done{}, nil
	})
	h.handle("PUT /api/user-limits/{user}/{name}", administrator, unavailable("user-limits", func(c *call) error {
		if userExists(c) != nil {
			return badRequest([]string{"no_such_user", c.PathValue("user")})
		}
		return nil
	}))

	h.handle("GET /api/global-parameters", administrator, func(*call) (any, error) { return []fields{clusterTags()}, nil })
	h.handle("GET /api/global-parameters/cluster_tags", administrator, func(*call) (any, error) { return clusterTags(), nil })
	h.handle("GET /api/global-parameters/{name}", administrator, missing)
	h.handle("DELETE /api/global-parameters/{name}", administrator, missing)
	h.handle("PUT /api/global-parameters/{name}", administrator, unavailable("global-parameters", func(*call) error { return nil }))

	h.handle("GET /api/feature-flags", administrator, nothing)
	h.handle("GET /api/deprecated-features", administrator, nothing)
	h.handle("GET /api/deprecated-features/used", administrator, nothing)
}

// clusterTags returns the only global parameter. Its value is empty.
func clusterTags() fields { return fields{"name": "cluster_tags", "value": []string{}} }

func nothing(*call) (any, error) { return []fields{}, nil }

func missing(*call) (any, error) { return nil, notFound }

// nothingIn returns an endpoint that responds with an empty list if the object in the path exists.
func nothingIn(exists func(*call) error) endpoint {
	return func(c *call) (any, error) { return []fields{}, exists(c) }
}

func unavailable(what string, exists func(*call) error) endpoint {
	return func(c *call) (any, error) {
		return nil, cmp.Or[error](exists(c), badRequest(what+" are not supported"))
	}
}

func vhostExists(c *call) error {
	_, err := c.vhost()
	return err
}

func vhostExistsToChange(c *call) error {
	_, err := c.vhostToChange()
	return err
}

func userExists(c *call) error {
	if _, known := c.node.Access.User(c.PathValue("user")); !known {
		return notFound
	}
	return nil
}
