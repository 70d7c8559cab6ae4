package reprise

// SetUser makes the client take its connections for another user's.
func (c *Client) SetUser(name string) { c.publishing.user = name }
