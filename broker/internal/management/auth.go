package management

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

type userKey struct{}

// authenticate checks the credentials in a request and, if they are valid, dispatches the request.
func (h *Handler) authenticate(w http.ResponseWriter, r *http.Request) {
	name, password, given := r.BasicAuth()
	w.Header().Set("Vary", "Authorization")
	if !given {
		w.Header().Set("WWW-Authenticate", `Basic realm="RabbitMQ Management"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	ok, err := h.node.Access.Login(r.RemoteAddr, name, password)
	if waits, found := errors.AsType[*access.WaitError](err); found {
		h.log.Debug("management login refused", "user", name, "peer", r.RemoteAddr, "reason", waits) // debug level, because clients can cause any number of these entries
		refuseFor(w, waits.Wait)
		return
	}
	h.node.Stats.HTTPLogins.Count(ok)
	if !ok {
		h.log.Warn("management login refused", "user", name, "peer", r.RemoteAddr,
			"reason", h.node.Access.Refusal(r.RemoteAddr, name, password))
		w.Header().Set("WWW-Authenticate", `Basic realm="RabbitMQ Management"`)
		refuse(w, &failure{http.StatusUnauthorized, "not_authorized", "Not_Authorized"})
		return
	}
	user, _ := h.node.Access.User(name)
	if err := anyone.check(user); err != nil {
		h.fail(w, r, err)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), userKey{}, user))
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	h.dispatch(w, r)
}

// refuseFor refuses a request whose login must wait for the duration wait.
func refuseFor(w http.ResponseWriter, wait time.Duration) {
	seconds := int((wait + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	refuse(w, &failure{http.StatusTooManyRequests, "too_many_requests", fmt.Sprintf(
		"too many wrong passwords for this user from your address; try again in %d s", seconds)})
}

// privilege is the right that an endpoint requires. Each of the first three privileges includes all lower ones.
type privilege uint8

const (
	anyone        privilege = iota // user with a tag that permits the use of the API
	monitor                        // user who may monitor all connections and the node
	administrator                  // user who may change the node
	policymaker                    // user who may change policies and parameters; not included in monitor
)

func (p privilege) check(u access.User) error {
	switch {
	case p == anyone && !tagged(u, "administrator", "monitoring", "policymaker", "management"):
		return notAuthorised("Not management user")
	case p == monitor && !tagged(u, "administrator", "monitoring"):
		return notAuthorised("Not monitor user")
	case p == administrator && !tagged(u, "administrator"):
		return notAuthorised("Not administrator user")
	case p == policymaker && !tagged(u, "administrator", "policymaker"):
		return notYours
	}
	return nil
}

func tagged(u access.User, tags ...string) bool {
	return slices.ContainsFunc(u.Tags, func(tag string) bool { return slices.Contains(tags, tag) })
}

func (c *call) is(p privilege) bool { return p.check(c.user) == nil }

// vhost returns the virtual host in the path, or an error if it does not exist or the user may not see it.
func (c *call) vhost() (*vhost.VHost, error) {
	v := c.node.VHost(c.PathValue("vhost"))
	switch {
	case v == nil:
		return nil, notFound
	case !c.is(administrator) && !c.node.Access.MayEnter(c.user.Name, v.Name()):
		return nil, invisible
	}
	return v, nil
}

// vhostToChange is like vhost, but for requests that may create an object. As in RabbitMQ, such requests get a
// different error if the virtual host is missing.
func (c *call) vhostToChange() (*vhost.VHost, error) {
	v, err := c.vhost()
	if err == error(notFound) {
		err = vhostNotFound
	}
	return v, err
}

// visible returns the virtual host in the path or, if the path does not contain a virtual host, all virtual hosts
// that the user may see.
func (c *call) visible() ([]*vhost.VHost, error) {
	if c.PathValue("vhost") != "" {
		v, err := c.vhost()
		return []*vhost.VHost{v}, err
	}
	all := c.node.VHosts()
	if c.is(administrator) {
		return all, nil
	}
	return slices.DeleteFunc(all, func(v *vhost.VHost) bool { return !c.node.Access.MayEnter(c.user.Name, v.Name()) }), nil
}

// may returns an error unless the user has the permission op on the queue or exchange with the given name.
func (c *call) may(v *vhost.VHost, op access.Operation, name string) error {
	if c.is(administrator) || c.node.Access.Allowed(c.user.Name, v.Name(), op, name) {
		return nil
	}
	return accessRefused
}

func (c *call) mayExchange(v *vhost.VHost, op access.Operation, name string) error {
	return c.may(v, op, cmp.Or(name, defaultExchange))
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
