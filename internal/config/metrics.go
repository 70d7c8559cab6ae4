package config

import "net"

// metricsAddr reads where metrics and health are served. They are often for other
// machines, which the address then has to say.
func (v value) metricsAddr() string {
	const example = "127.0.0.1:9090"
	s, ok := v.text(example)
	if !ok {
		return ""
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		v.fail("metrics is no address: write %s, or port 0 for any free one", example)
		return ""
	}
	if !isPort(port) {
		v.fail("metrics has no port from 0 to 65535: write %s, or port 0 for any free one", example)
		return ""
	}
	if host == "" {
		v.fail("metrics names no host: write 127.0.0.1:%s for this machine only, or 0.0.0.0:%s for others too", port, port)
		return ""
	}
	return s
}
