package coverart

import (
	"context"
	"errors"
	"net/http"
)

// ErrNotInArchive is returned by an Archive if an object or its bucket does not exist.
var ErrNotInArchive = errors.New("coverart: not in the archive")

// Archive is the store of images, an S3 server that accepts additional headers. Each method makes one attempt, can be
// repeated with the same arguments, and is safe for concurrent use. A nil error means that the store has confirmed the
// request.
type Archive interface {
	// Put writes an object. It replaces an existing object at the same location.
	Put(ctx context.Context, o Object) error

	// Copy copies an object inside the store. It returns ErrNotInArchive if from does not exist.
	Copy(ctx context.Context, from, to Location, headers http.Header) error

	// Delete deletes an object. It returns ErrNotInArchive if the object does not exist.
	Delete(ctx context.Context, l Location, headers http.Header) error

	// Has reports whether the object exists.
	Has(ctx context.Context, l Location) (bool, error)
}

// Location is the address of an object.
type Location struct {
	Bucket string
	Key    string
}

func (l Location) String() string { return l.Bucket + "/" + l.Key }

// Object is an object to write.
type Object struct {
	Location
	ContentType string
	Body        []byte
	Headers     http.Header // additional headers for the archive
}

// Bucket returns the name of a release's bucket.
func Bucket(gid string) string { return "mbid-" + gid }

// ImageLocation returns the location of an image of a release.
func ImageLocation(gid, id, suffix string) Location {
	return Location{Bucket: Bucket(gid), Key: "mbid-" + gid + "-" + id + "." + suffix}
}

// IndexLocation returns the location of a release's index.
func IndexLocation(gid string) Location { return Location{Bucket: Bucket(gid), Key: IndexKey} }

// MetadataLocation returns the location of a release's metadata.
func MetadataLocation(gid string) Location {
	return Location{Bucket: Bucket(gid), Key: "mbid-" + gid + "_mb_metadata.xml"}
}

// The functions below return the headers for the archive, one set for each kind of request. The headers are part of the
// protocol with the archive. x-archive-auto-make-bucket creates the bucket of a release with its first object.
// x-archive-cascade-delete also deletes the thumbnails of an image. The -meta- headers set the metadata of a new
// bucket.
func indexHeaders() http.Header { return putHeaders("x-archive-keep-old-version", "1") }

// Each index event writes the metadata again, usually unchanged, so the archive does not keep old versions.
func metadataHeaders() http.Header { return putHeaders() }

func imageHeaders() http.Header { return putHeaders("x-archive-keep-old-version", "1") }

func putHeaders(more ...string) http.Header {
	return headers(append([]string{
		"x-archive-auto-make-bucket", "1",
		"x-archive-meta-collection", "coverartarchive",
		"x-archive-meta-mediatype", "image",
		"x-archive-meta-noindex", "true",
	}, more...)...)
}

func deleteHeaders() http.Header {
	return headers(
		"x-archive-cascade-delete", "1",
		"x-archive-keep-old-version", "1",
	)
}

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}
