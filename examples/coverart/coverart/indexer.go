package coverart

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise"
)

// Grace is the grace period of the original indexer. MusicBrainz publishes several equal events when an edit changes
// several parts of a release. Therefore the worker waits for equal events, and handles only one of them.
const Grace = 10 * time.Second

// Indexer handles the three kinds of events. Catalogue, Archive and WebService are required. The handlers are safe for
// concurrent use.
type Indexer struct {
	Catalogue  Catalogue
	Archive    Archive
	WebService WebService

	// Logger logs unknown releases, and objects that are already deleted or moved. Default: no logs.
	Logger *slog.Logger
}

// Index handles an index event.
func (x *Indexer) Index(ctx context.Context, m *reprise.Delivery) error {
	gid, err := ParseIndex(m.Body)
	if err != nil {
		return reprise.Park(err)
	}
	return x.index(ctx, gid)
}

// Delete handles a delete event.
func (x *Indexer) Delete(ctx context.Context, m *reprise.Delivery) error {
	d, err := ParseDelete(m.Body)
	if err != nil {
		return reprise.Park(err)
	}
	return x.delete(ctx, d)
}

// Move handles a move event.
func (x *Indexer) Move(ctx context.Context, m *reprise.Delivery) error {
	v, err := ParseMove(m.Body)
	if err != nil {
		return reprise.Park(err)
	}
	return x.move(ctx, v)
}

func (x *Indexer) log() *slog.Logger {
	if x.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return x.Logger
}

func (x *Indexer) index(ctx context.Context, gid string) error {
	r, err := x.Catalogue.Release(ctx, gid)
	if errors.Is(err, ErrUnknownRelease) {
		// The release was probably deleted. A retry would not find the release, and a deleted release does not need an
		// index.
		x.log().WarnContext(ctx, "unknown release, skipped", "release", gid)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look up release %s: %w", gid, err)
	}
	index, err := IndexJSON(r)
	if err != nil {
		return err
	}
	err = x.Archive.Put(ctx, Object{
		Location: IndexLocation(r.GID), ContentType: "application/json; charset=utf-8", Body: index, Headers: indexHeaders(),
	})
	if err != nil {
		return err
	}
	metadata, err := x.WebService.ReleaseXML(ctx, r.GID)
	if err != nil {
		return err
	}
	return x.Archive.Put(ctx, Object{
		Location: MetadataLocation(r.GID), ContentType: "application/xml; charset=utf-8", Body: metadata, Headers: metadataHeaders(),
	})
}

func (x *Indexer) delete(ctx context.Context, d Delete) error {
	l := IndexLocation(d.GID)
	if d.ID != IndexKey {
		l = ImageLocation(d.GID, d.ID, d.Suffix)
	}
	return x.remove(ctx, l)
}

// remove deletes an object. A missing object is not an error.
func (x *Indexer) remove(ctx context.Context, l Location) error {
	err := x.Archive.Delete(ctx, l, deleteHeaders())
	if errors.Is(err, ErrNotInArchive) {
		x.log().InfoContext(ctx, "already deleted", "object", l.String())
		return nil
	}
	return err
}

func (x *Indexer) move(ctx context.Context, v Move) error {
	from, to := ImageLocation(v.Old, v.ID, v.Suffix), ImageLocation(v.New, v.ID, v.Suffix)
	err := x.Archive.Copy(ctx, from, to, imageHeaders())
	if errors.Is(err, ErrNotInArchive) {
		// An earlier attempt may have deleted the original.
		moved, statErr := x.Archive.Has(ctx, to)
		if statErr != nil {
			return statErr
		}
		if moved {
			x.log().InfoContext(ctx, "already moved", "object", to.String())
			return nil
		}
	}
	if err != nil {
		return err
	}
	return x.remove(ctx, from)
}
