package jsonapi

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/reprisemq/reprise/console/internal/fault"
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/internal/api"
)

const JsonLines = "application/x-ndjson"

// errSecrets says that an export would tell what they may not see.
var errSecrets = &fault.Failure{
	Status: http.StatusForbidden,
	Text:   "an export has secrets in it that you may not see",
	Advice: "ask for a token with the role admin",
}

func exportMessages(c *web.Call) error {
	f, err := c.Filter()
	if err != nil {
		return err
	}
	if len(c.Secrets()) > 0 {
		return errSecrets
	}
	c.W.Header().Set("Content-Type", JsonLines)
	c.W.Header().Set("Content-Disposition", `attachment; filename="failed.jsonl"`)
	out := &patientWriter{w: c.W, control: http.NewResponseController(c.W)}
	if _, err := c.Archive.Export(c.R.Context(), f, out); err != nil {
		if !out.begun {
			c.W.Header().Del("Content-Disposition")
			return err
		}
		// The only way to say that what was sent is not all.
		c.Logger.Error("export broken off", "actor", c.Who.Actor, "err", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

func importMessages(c *web.Call) error {
	in := &patientReader{r: c.R.Body, control: http.NewResponseController(c.W)}
	n, err := c.Archive.Import(c.R.Context(), in, c.Who.Actor)
	if in.err != nil && !errors.Is(in.err, io.EOF) {
		return web.ReadFailure(in.err)
	}
	if err != nil {
		return err
	}
	return c.OK(api.Done{Messages: n})
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
