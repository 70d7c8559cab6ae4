package coverart

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// The fields of these types are sorted by JSON name. Their order is fixed, so equal indexes are encoded as equal bytes.
type (
	indexDocument struct {
		Images  []indexImage `json:"images"`
		Release string       `json:"release"`
	}
	indexImage struct {
		Approved   bool            `json:"approved"`
		Back       bool            `json:"back"`
		Comment    string          `json:"comment"`
		Edit       int64           `json:"edit"`
		Front      bool            `json:"front"`
		ID         int64           `json:"id"`
		Image      string          `json:"image"`
		Thumbnails indexThumbnails `json:"thumbnails"`
		Types      []string        `json:"types"`
	}
	indexThumbnails struct {
		W1200 string `json:"1200"`
		W250  string `json:"250"`
		W500  string `json:"500"`
		Large string `json:"large"` // same as 500, for programs that do not know the sizes
		Small string `json:"small"` // same as 250
	}
)

// IndexJSON returns the index of a release, the document that coverartarchive.org serves at /release/{gid}.
func IndexJSON(r *Release) ([]byte, error) {
	doc := indexDocument{
		Images:  make([]indexImage, 0, len(r.Images)), // so that JSON contains [] instead of null
		Release: "https://musicbrainz.org/release/" + r.GID,
	}
	for _, i := range r.Images {
		thumbnail := func(size string) string { return imageURL(r.GID, i.ID, "-"+size, DefaultSuffix) }
		types := i.Types
		if types == nil {
			types = []string{}
		}
		doc.Images = append(doc.Images, indexImage{
			Approved: i.Approved, Back: i.Back, Comment: i.Comment, Edit: i.Edit, Front: i.Front, ID: i.ID,
			Image: imageURL(r.GID, i.ID, "", i.suffix()),
			Thumbnails: indexThumbnails{
				W1200: thumbnail("1200"), W250: thumbnail("250"), W500: thumbnail("500"), Large: thumbnail("500"), Small: thumbnail("250"),
			},
			Types: types,
		})
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // a comment can contain a character such as &
	if err := enc.Encode(doc); err != nil {
		return nil, fmt.Errorf("coverart: cannot encode index of %s: %w", r.GID, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// imageURL returns the public address of an image. The scheme is http, because other programs compare the addresses
// with older addresses.
func imageURL(gid string, id int64, size, suffix string) string {
	return fmt.Sprintf("http://coverartarchive.org/release/%s/%d%s.%s", gid, id, size, suffix)
}
