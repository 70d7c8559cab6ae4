package jsonapi

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/brief"
)

// Media types of an export.
const (
	jsonLines = "application/x-ndjson"
	csvType   = "text/csv"
)

// errSecrets is returned to users who may not see secrets, because an export in JSON Lines contains the secrets.
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
	out := &extendingWriter{w: c.W, control: http.NewResponseController(c.W)}
	switch format := c.Params.Get("format"); format {
	case "", "jsonl":
		if len(c.Secrets()) > 0 {
			return errSecrets
		}
		c.W.Header().Set("Content-Type", jsonLines)
		c.W.Header().Set("Content-Disposition", `attachment; filename="failed.jsonl"`)
		_, err = c.Archive.Export(c.R.Context(), f, out)
	case "csv":
		c.W.Header().Set("Content-Type", csvType)
		c.W.Header().Set("Content-Disposition", `attachment; filename="failed.csv"`)
		err = writeCSV(c, f, out)
	default:
		return fault.BadRequest("format "+brief.Quoted(format)+" not found", "write format=csv or format=jsonl")
	}
	if err != nil {
		if !out.begun {
			c.W.Header().Del("Content-Disposition")
			return err
		}
		// After the first bytes, a client can detect an incomplete export only by the aborted connection.
		c.Logger.Error("export aborted", "actor", c.Who.Actor, "err", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

func importMessages(c *web.Call) (api.Done, error) {
	in := &extendingReader{r: c.R.Body, control: http.NewResponseController(c.W)}
	n, err := c.Archive.Import(c.R.Context(), in, c.Who.Actor)
	if in.err != nil && !errors.Is(in.err, io.EOF) {
		err = web.ReadFailure(in.err)
	}
	return api.Done{Messages: n}, err
}

// idleTimeout is the timeout of a single read or write within a long body.
const idleTimeout = time.Minute

// extendingWriter extends the write deadline before each write, because the server sets one deadline for the complete
// response.
type extendingWriter struct {
	w       io.Writer
	control *http.ResponseController
	begun   bool
}

func (p *extendingWriter) Write(b []byte) (int, error) {
	p.begun = true
	_ = p.control.SetWriteDeadline(time.Now().Add(idleTimeout)) // fails only in tests without a connection
	return p.w.Write(b)
}

// extendingReader extends the read and write deadlines before each read.
type extendingReader struct {
	r       io.Reader
	control *http.ResponseController
	err     error
}

func (p *extendingReader) Read(b []byte) (int, error) {
	end := time.Now().Add(idleTimeout)
	_ = p.control.SetReadDeadline(end)
	_ = p.control.SetWriteDeadline(end) // the response follows the body
	n, err := p.r.Read(b)
	p.err = err
	return n, err
}
