package coverart

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/reprisemq/reprise"
)

// WebService returns the metadata of releases.
type WebService interface {
	// ReleaseXML returns the release and its artists as MusicBrainz XML. It makes one attempt. It is safe for
	// concurrent use.
	ReleaseXML(ctx context.Context, gid string) ([]byte, error)
}

// maxMetadata is the maximum size of a response, in bytes. A typical response is a few kilobytes long.
const maxMetadata = 16 << 20

// maxRetryAfter limits the delay from Retry-After to one year, in seconds.
const maxRetryAfter = 365 * 24 * 60 * 60

// HTTPWebService is the web service of a MusicBrainz server.
type HTTPWebService struct {
	BaseURL   string       // https://musicbrainz.org
	UserAgent string       // MusicBrainz requires the name of the program and contact information
	Client    *http.Client // default: http.DefaultClient
}

// ReleaseXML requests /ws/2/release/{gid}?inc=artists. If an error response contains the header Retry-After with a
// number of seconds, the error is a reprise.RetryAfterError. The strategy of [Design] ignores that delay,
// because all its retries have the same delay.
func (s *HTTPWebService) ReleaseXML(ctx context.Context, gid string) ([]byte, error) {
	url := s.BaseURL + "/ws/2/release/" + gid + "?inc=artists"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("coverart: cannot create request: %w", err)
	}
	if s.UserAgent != "" {
		req.Header.Set("User-Agent", s.UserAgent)
	}
	req.Header.Set("Accept", "application/xml")
	client := s.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("coverart: cannot reach web service: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // the body was read, or the read error is returned
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMetadata+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("coverart: GET %s: %w", url, err)
	case resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("%s: GET %s", resp.Status, url) // the status comes first, because long errors are truncated
		if seconds, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && seconds > 0 {
			return nil, reprise.RetryAfter(time.Duration(min(seconds, maxRetryAfter))*time.Second, err)
		}
		return nil, err
	case len(body) > maxMetadata:
		return nil, fmt.Errorf("GET %s: response must have at most %d bytes", url, maxMetadata)
	}
	return body, nil
}
