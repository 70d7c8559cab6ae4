package pages

import (
	"context"
	"slices"
	"time"

	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/failed"
)

// whereabouts are where messages go that each go back to where they failed.
type whereabouts struct {
	All     []failed.Destination // the most messages first, as many as a page has room for
	More    int                  // destinations that are left out
	Warned  bool                 // some of All have a Warning
	Unknown int64                // messages that stay, since nobody knows where they failed
	Late    bool                 // it took too long to look
}

// maxDestinations is how many a page shows.
const maxDestinations = 20

// maxLooking bounds for how long a page looks at all messages that are selected.
const maxLooking = 5 * time.Second

func findWhereabouts(c *web.Call, f failed.Filter) (*whereabouts, error) {
	ctx, cancel := context.WithTimeout(c.R.Context(), maxLooking)
	defer cancel()
	all, err := c.Archive.Destinations(ctx, failed.Plan{Filter: f}, c.Routing)
	switch {
	case err != nil && ctx.Err() != nil && c.R.Context().Err() == nil:
		return &whereabouts{Late: true}, nil
	case err != nil:
		return nil, err
	}
	w := &whereabouts{All: all[:min(len(all), maxDestinations)]}
	w.More = len(all) - len(w.All)
	w.Warned = slices.ContainsFunc(w.All, func(d failed.Destination) bool { return d.Warning != "" })
	for _, d := range all {
		if d.Unknown {
			w.Unknown += d.Messages
		}
	}
	return w, nil
}
