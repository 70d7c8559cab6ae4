package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

type failedShowCmd struct {
	ID   int64 `arg:"" help:"Number of the message."`
	Body bool  `help:"Print the body only, as it is."`
	Raw  bool  `name:"original" help:"Of an edited message: as it was before."`
	JSON bool  `name:"json" help:"Print all of it as JSON."`
	serverFlags
}

// Help shows examples below the flags.
func (failedShowCmd) Help() string {
	return `Examples:
  reprise failed show 17
  reprise failed show 17 --body | jq .
  reprise failed show 17 --json
`
}

// Run shows a message.
func (c *failedShowCmd) Run(ctx context.Context, streams IO) error {
	if c.Body && c.JSON {
		return usagef("--body is the body, and --json all of the message: give one of the two")
	}
	client, err := c.client(streams)
	if err != nil {
		return err
	}
	m, err := client.Message(ctx, c.ID)
	if err != nil {
		return c.asked(err)
	}
	content := m.Original
	if m.Edited != nil && !c.Raw {
		content = *m.Edited
	}
	switch {
	case c.JSON:
		return json.NewEncoder(streams.Stdout).Encode(m)
	case c.Body:
		_, err = streams.Stdout.Write(content.Body)
		return err
	}
	_, err = fmt.Fprint(streams.Stdout, messageText(m, content, time.Now(), tableWidth(streams)))
	return err
}
