package management

import "cmp"

// addUnsupported adds the endpoints for unsupported objects. Their lists are empty. Requests to get or delete an object
// return 404. Requests to create an object fail, and requests whose path contains a missing virtual host or user also fail.
func (h *Handler) addUnsupported() {
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

	h.handle("GET /api/feature-flags", administrator, nothing)
	h.handle("GET /api/deprecated-features", administrator, nothing)
	h.handle("GET /api/deprecated-features/used", administrator, nothing)
}

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

func userExists(c *call) error {
	if _, known := c.node.Access.User(c.PathValue("user")); !known {
		return notFound
	}
	return nil
}
