package cli

type topologyCmd struct {
	Graph graphCmd `cmd:"" help:"Draw the exchanges and queues of a configuration."`
}
