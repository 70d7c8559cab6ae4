package console

import (
	"errors"
	"net/http"
	"slices"

	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/figures"
	"github.com/reprisemq/reprise/internal/archive/console/internal/jsonapi"
	"github.com/reprisemq/reprise/internal/archive/console/internal/pages"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
)

// Console is an [http.Handler] that serves the pages and the API. A Console does not have to be shut down. Changes to
// the Config after New do not affect the Console, except through SetTokens. A Console is safe for concurrent use.
type Console struct {
	cfg    Config // includes the defaults
	server *web.Server
}

// New returns a Console, or the error of Config.Validate.
func New(cfg Config) (*Console, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	c := &Console{cfg: cfg, server: &web.Server{
		Config: cfg, FailPage: pages.FailPage,
		Guard: access.NewGuard(slices.Clone(cfg.Tokens), cfg.Secure, cfg.Prefix+"/", cfg.Clock, cfg.Logger),
	}}
	c.server.Build(c.routes())
	return c, nil
}

// SetTokens replaces the tokens of the Config, for example after a change of the file that contains them. The sessions of
// removed tokens end, and the other sessions get the new role of their token. SetTokens returns an error, and changes
// nothing, if a token is invalid or if one of the lists is empty: a Console has tokens always or never.
func (c *Console) SetTokens(tokens []Token) error {
	if len(tokens) == 0 || !c.server.Guard.HasTokens() {
		return errors.New("console: SetTokens: the old and the new list of tokens must not be empty")
	}
	if err := access.ValidateTokens(tokens); err != nil {
		return err
	}
	c.server.Guard.SetTokens(slices.Clone(tokens))
	return nil
}

func (c *Console) routes() []web.Route {
	if m := c.cfg.Management; m != nil {
		c.server.Figures = figures.NewBroker(*m)
	}
	p := pages.Pages{Broker: c.server.Figures, Topology: c.cfg.Topology, TraceURL: c.cfg.TraceURL, Workers: c.cfg.Workers, Done: figures.NewDoneRates(c.cfg.Ledger)}
	p.Live = pages.NewLive(c.cfg.Archive, p.Broker, p.Done, c.cfg.Fleet)
	return slices.Concat(jsonapi.Routes(), p.Routes())
}

// ServeHTTP implements [http.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.server.ServeHTTP(w, r) }
