package demo

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"

	"github.com/reprisemq/reprise/examples/coverart"
	"github.com/reprisemq/reprise/examples/coverart/standin"
)

// store is the archive: an S3 in memory, behind HTTP and a layer of faults.
type store struct {
	*standin.Server
	archive *standin.Store
	picture []byte // what every image looks like
}

func startStore(f *faults) (*store, error) {
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 16, 16)), nil); err != nil {
		return nil, fmt.Errorf("demo: picture: %w", err)
	}
	s := &store{archive: standin.NewStore(), picture: picture.Bytes()}
	f.next = s.archive
	server, err := standin.Serve(f)
	s.Server = server
	return s, err
}

// upload puts an image into the store past the faults.
func (s *store) upload(l coverart.Location) error { return s.archive.Upload(l, s.picture) }
