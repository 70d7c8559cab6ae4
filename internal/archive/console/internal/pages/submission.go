package pages

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// claimSubmission returns an error if the form was submitted before, for example because the browser repeated the
// request or the user went back to the page. Handlers call it directly before the action, so that a form with a mistake
// can be submitted again. The limit in the form (at_most) does not prevent a repetition, because the repeated form
// could apply to messages that arrived later.
func claimSubmission(c *web.Call, v url.Values) error {
	if !v.Has("submission") { // the form does not come from a page
		return nil
	}
	err := c.Archive.ClaimSubmission(c.R.Context(), v.Get("submission"))
	if errors.Is(err, failed.ErrState) {
		return &fault.Failure{
			Status: http.StatusConflict, Text: "this form was already submitted, and nothing was changed now",
			Advice: "see the audit log for the result of the first submission; to repeat the action, open the page again",
		}
	}
	return err
}
