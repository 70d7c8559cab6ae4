package pages

import (
	"net/url"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
)

var loginRoutes = []web.Route{
	{Method: "GET", Path: "/login", Role: access.Nobody, Query: []string{"next"}, Handle: showLogin},
	{Method: "POST", Path: "/login", Role: access.Nobody, Form: []string{"next", "token"}, Handle: login},
	{Method: "POST", Path: "/logout", Role: access.Nobody, Handle: logout},
}

func showLogin(c *web.Call) error {
	next := LocalPath(c.Params.Get("next"))
	if c.Who.Role > access.Nobody {
		c.Redirect(next)
		return nil
	}
	return loginPage(c, next, nil)
}

// login processes the login form, which contains the token and the next page.
func login(c *web.Call) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	next := LocalPath(v.Get("next"))
	if c.Guard.HasTokens() {
		if err := c.Guard.LogIn(c.W, c.R, c.Who, v.Get("token")); err != nil {
			return loginPage(c, next, fault.AsFailure(err))
		}
	}
	c.Redirect(next)
	return nil
}

func logout(c *web.Call) error {
	c.Guard.LogOut(c.W, c.R, c.Who)
	return c.SeeOther("/login", nil)
}

// LocalPath returns next, the page after the login, if it is a path without a host, and otherwise "/", because another
// site may have created the link.
func LocalPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(u.Path, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	return u.RequestURI()
}
