package cli

type topologyCmd struct {
	Graph graphCmd `cmd:"" help:"Draw what the workers of a configuration declare."`
}
