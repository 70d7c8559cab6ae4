package pages

import (
	"fmt"
	"strconv"

	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
)

// mute excludes a group from notifications.
func (p *Pages) mute(c *web.Call, id failed.GroupID) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	text := v.Get("seconds")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return fault.BadRequest(fmt.Sprintf("seconds must be an integer of at least 0: got %s", brief.Quoted(text)), "use 0 to mute the group without a time limit")
	}
	if err := c.Mute(id, seconds); err != nil {
		return err
	}
	return c.SeeOther(fmt.Sprintf("/groups/%d", id), nil)
}

// unmute ends the mute of a group.
func (p *Pages) unmute(c *web.Call, id failed.GroupID) error {
	if err := c.Archive.Unmute(c.R.Context(), id, c.Who.Actor); err != nil {
		return err
	}
	return c.SeeOther(fmt.Sprintf("/groups/%d", id), nil)
}
