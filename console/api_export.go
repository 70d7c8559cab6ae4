package console

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/reprisemq/reprise/internal/api"
)

const jsonLines = "application/x-ndjson"

// errSecrets says that an export would tell what they may not see.
var errSecrets = &failure{
	status: http.StatusForbidden,
	text:   "an export has secrets in it that you may not see",
	advice: "ask for a token with the role admin",
}

func (c *call) apiExport() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	if len(c.secrets()) > 0 {
		return errSecrets
	}
	c.w.Header().Set("Content-Type", jsonLines)
	c.w.Header().Set("Content-Disposition", `attachment; filename="failed.jsonl"`)
	out := &patientWriter{w: c.w, control: http.NewResponseController(c.w)}
	if _, err := c.cfg.Archive.Export(c.r.Context(), f, out); err != nil {
		if !out.begun {
			c.w.Header().Del("Content-Disposition")
			return err
		}
		// The only way to say that what was sent is not all.
		c.cfg.Logger.Error("export broken off", "actor", c.who.actor, "err", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (c *call) apiImport() error {
	in := &patientReader{r: c.r.Body, control: http.NewResponseController(c.w)}
	n, err := c.cfg.Archive.Import(c.r.Context(), in, c.who.actor)
	if in.err != nil && !errors.Is(in.err, io.EOF) {
		return readFailure(in.err)
	}
	if err != nil {
		return err
	}
	return c.ok(api.Done{Messages: n})
}

// patience is for how long the other side may be silent within a long body.
const patience = time.Minute

// patientWriter writes what takes long to those who go on reading. A server's own
// limit of time would be one for the whole.
type patientWriter struct {
	w       io.Writer
	control *http.ResponseController
	begun   bool
}

func (p *patientWriter) Write(b []byte) (int, error) {
	p.begun = true
	_ = p.control.SetWriteDeadline(time.Now().Add(patience)) // what is no connection has no deadlines
	return p.w.Write(b)
}

// patientReader is patientWriter the other way.
type patientReader struct {
	r       io.Reader
	control *http.ResponseController
	err     error
}

func (p *patientReader) Read(b []byte) (int, error) {
	end := time.Now().Add(patience)
	_ = p.control.SetReadDeadline(end)
	_ = p.control.SetWriteDeadline(end) // the answer comes after it
	n, err := p.r.Read(b)
	p.err = err
	return n, err
}
