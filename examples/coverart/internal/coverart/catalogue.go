package coverart

import (
	"context"
	"errors"
)

// ErrUnknownRelease is returned by a Catalogue that does not have a release.
var ErrUnknownRelease = errors.New("coverart: unknown release")

// Catalogue is the database, as far as the indexer needs it.
type Catalogue interface {
	// Release returns the release that gid leads to now: releases are merged,
	// and a gid that once was another release's is a redirect ever after, so
	// the result's own GID may differ. A gid that leads nowhere gives
	// ErrUnknownRelease. Safe for concurrent use; the result is not changed.
	Release(ctx context.Context, gid string) (*Release, error)
}

// Release is a release and its images, in the order they are shown.
type Release struct {
	GID    string  `json:"gid"`
	Title  string  `json:"title"`
	Artist string  `json:"artist"` // the artist credit, as one text
	Date   string  `json:"date,omitempty"`
	Images []Image `json:"images"`
}

// Image is a piece of cover art.
type Image struct {
	ID       int64    `json:"id"`
	Types    []string `json:"types"` // Front, Back, Booklet, …
	Front    bool     `json:"front"` // the one to show when only one is shown
	Back     bool     `json:"back"`
	Comment  string   `json:"comment,omitempty"`
	Suffix   string   `json:"suffix,omitempty"` // default jpg
	Approved bool     `json:"approved"`
	Edit     int64    `json:"edit,omitempty"` // the edit that added it
}

func (i Image) suffix() string {
	if i.Suffix == "" {
		return DefaultSuffix
	}
	return i.Suffix
}

// Memory is a Catalogue that is a table in memory. It is not to be changed
// while it is used.
type Memory struct {
	Releases  []Release
	Redirects map[string]string // gid that was merged into another one → that one
}

// Release looks gid up, through any number of redirects.
func (m *Memory) Release(_ context.Context, gid string) (*Release, error) {
	for range len(m.Redirects) { // redirects in a circle lead nowhere
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
