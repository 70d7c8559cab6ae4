package registry

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// documentName joins the kind and the names with slashes. It escapes each name like a path segment of a URL, because a
// name may contain any bytes.
func documentName(kind string, names []string) string {
	var b strings.Builder
	b.WriteString(kind)
	b.WriteByte('/')
	for i, name := range names {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(url.PathEscape(name))
	}
	return b.String()
}

// parseName is the inverse of documentName. It returns an error if the name of the document is invalid or does not
// contain the given number of names.
func parseName(document string, names int) ([]string, error) {
	_, path, _ := strings.Cut(document, "/")
	var all []string
	if names > 0 {
		all = strings.Split(path, "/")
	}
	var err error
	for i := range all {
		if all[i], err = url.PathUnescape(all[i]); err != nil {
			break
		}
	}
	if err != nil || len(all) != names {
		return nil, fmt.Errorf("%q in the data directory: %w", document, store.ErrDamaged)
	}
	return all, nil
}
