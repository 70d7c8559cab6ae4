package coverart

import (
	"context"
	"errors"
)

// ErrUnknownRelease is returned if a Catalogue does not contain the release.
var ErrUnknownRelease = errors.New("coverart: unknown release")

// Catalogue provides the part of the database that the indexer reads.
type Catalogue interface {
	// Release returns the current release for gid. After a merge, the gid of the old release redirects to the target of
	// the merge, so the GID of the result can differ from gid. Release returns ErrUnknownRelease if the release does
	// not exist. It is safe for concurrent use. Callers must not change the result.
	Release(ctx context.Context, gid string) (*Release, error)
}

// Release is a release with its images in display order.
type Release struct {
	GID    string  `json:"gid"`
	Title  string  `json:"title"`
	Artist string  `json:"artist"` // the artist credit, as a single string
	Date   string  `json:"date,omitempty"`
	Images []Image `json:"images"`
}

// Image is a piece of cover art.
type Image struct {
	ID       int64    `json:"id"`
	Types    []string `json:"types"` // Front, Back, Booklet, …
	Front    bool     `json:"front"` // the image for pages that show a single image
	Back     bool     `json:"back"`
	Comment  string   `json:"comment,omitempty"`
	Suffix   string   `json:"suffix,omitempty"` // default jpg
	Approved bool     `json:"approved"`
	Edit     int64    `json:"edit,omitempty"` // the edit that added the image
}

func (i Image) suffix() string {
	if i.Suffix == "" {
		return DefaultSuffix
	}
	return i.Suffix
}

// Memory is a Catalogue in memory. The caller must not change it while handlers use it.
type Memory struct {
	Releases  []Release
	Redirects map[string]string // from the gid of a merged release to the gid of the target
}

// Release implements Catalogue. It follows any number of redirects.
func (m *Memory) Release(_ context.Context, gid string) (*Release, error) {
	for range len(m.Redirects) { // the limit ends a cycle of redirects
		next, found := m.Redirects[gid]
		if !found {
			break
		}
		gid = next
	}
	for i := range m.Releases {
		if m.Releases[i].GID == gid {
			return &m.Releases[i], nil
		}
	}
	return nil, ErrUnknownRelease
}
