package pages

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"

	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
)

//go:embed assets
var assetFiles embed.FS

// serveAsset serves a script, a style sheet or another file in assets. Browsers revalidate the file before each use
// with its ETag, a hash of the file.
func serveAsset(c *web.Call) error {
	name := c.R.PathValue("file")
	data, err := assetFiles.ReadFile("assets/" + name)
	if err != nil {
		return noPage(c)
	}
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	h := c.W.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", tag)
	if c.R.Header.Get("If-None-Match") == tag {
		c.W.WriteHeader(http.StatusNotModified)
		return nil
	}
	kind := "text/plain; charset=utf-8"
	switch path.Ext(name) { // not mime.TypeByExtension, which depends on the operating system
	case ".css":
		kind = "text/css; charset=utf-8"
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".svg":
		kind = "image/svg+xml"
	}
	h.Set("Content-Type", kind)
	_, _ = c.W.Write(data)
	return nil
}
