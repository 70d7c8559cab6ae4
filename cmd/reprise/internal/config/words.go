package config

import (
	"slices"
	"strings"
)

// closest returns the word that the user probably meant by key.
func closest(key string, words []string) (string, bool) {
	key = strings.ToLower(strings.ReplaceAll(key, "-", "_"))
	best, distance := "", 3
	for _, w := range words {
		if d := edits(key, w); d < distance && d < len(w)-1 {
			best, distance = w, d
		}
	}
	if best != "" {
		return best, true
	}
	for _, w := range words {
		if slices.Contains(synonyms[w], key) {
			return w, true
		}
	}
	return "", false
}

// synonyms maps keys to the terms that other tools use for them.
var synonyms = map[string][]string{
	"url":         {"uri", "address", "endpoint"},
	"attempts":    {"max_attempts", "retries", "max_retries", "tries"},
	"backoff":     {"delay", "retry_delay", "retry"},
	"exec":        {"command", "cmd", "program", "run"},
	"process":     {"daemon", "stay", "stays", "keep_running", "long_lived", "stdio"},
	"processes":   {"process", "workers", "count", "instances"},
	"max_memory":  {"memory", "memory_limit", "rss"},
	"command":     {"cmd", "args", "run"},
	"dir":         {"cwd", "workdir", "directory", "working_dir"},
	"env":         {"environment"},
	"http":        {"url", "webhook", "post"},
	"drain":       {"drain_timeout", "grace", "shutdown_timeout"},
	"concurrency": {"parallel", "workers", "threads"},
	"bind":        {"binding", "bindings"},
	"key":         {"routing_key"},
	"broker":      {"url", "amqp", "rabbitmq"},
	"initial":     {"base", "min"},
	"factor":      {"multiplier"},
	"max":         {"maximum", "cap", "limit"},
	"retries":     {"attempts"},
	"retry_delay": {"backoff", "delay"},

	"metrics":          {"health", "healthz", "readyz", "monitoring", "prometheus", "probes", "status"},
	"telemetry":        {"tracing", "opentelemetry", "otel", "otlp", "traces", "trace", "observability"},
	"results":          {"result", "reply", "replies", "reply_to", "output", "response"},
	"reply_to":         {"reply"},
	"max_size":         {"size", "max_bytes"},
	"sample_ratio":     {"sampler", "sampling", "sample_rate", "sample", "ratio", "sampling_ratio"},
	"service":          {"service_name", "name"},
	"attributes":       {"resource", "resource_attributes", "labels", "tags"},
	"archive":          {"failed_messages"},
	"console":          {"dashboard", "ui", "web"},
	"notify":           {"notifications", "webhooks", "alerts"},
	"tokens":           {"token", "users", "auth"},
	"redact":           {"secrets", "hide", "mask"},
	"management":       {"management_url"},
	"route":            {"strategy", "mechanism"},
	"settle":           {"order", "ack"},
	"immediate":        {"immediate_retries", "immediate_attempts", "rerun"},
	"rate":             {"rate_limit", "ratelimit", "limiter", "limit", "throttle"},
	"key_rate":         {"rate_per_key", "limit_per_key", "key_limit", "per_key"},
	"shared_limit":     {"global_limit", "global_rate", "fleet_limit", "shared_rate"},
	"breaker":          {"circuit_breaker", "circuitbreaker"},
	"debounce":         {"grace_period", "coalesce", "collapse", "burst"},
	"duplicates":       {"dedupe", "dedup", "deduplicate", "deduplication", "idempotency", "idempotent", "once", "unique"},
	"crash_limit":      {"delivery_limit", "max_crashes", "max_deliveries"},
	"consumer_timeout": {"ack_timeout", "acknowledgement_timeout", "delivery_ack_timeout"},

	"first":        {"initial", "base", "min"},
	"queue_type":   {"type", "x_queue_type"},
	"routing_keys": {"keys", "bindings", "routing_key", "key"},
	"wait_args":    {"arguments", "args", "wait_arguments"},

	"limit":    {"rate", "per_second"},
	"times":    {"attempts", "count", "n", "retries"},
	"failures": {"threshold", "max_failures"},
	"open_for": {"open", "open_time", "timeout", "cooldown"},
	"window":   {"time", "period", "grace"},
	"keep":     {"retention", "ttl", "for"},
	"store":    {"database", "db", "path", "url"},
}

// edits returns the edit distance of a and b: the number of letters to insert, delete, replace or swap with a neighbor.
func edits(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	s, t := []rune(a), []rune(b)
	rows := make([][]int, len(s)+1)
	for i := range rows {
		rows[i] = make([]int, len(t)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(s); i++ {
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(s)][len(t)]
}

// The function these formats words as a list: "a, b and c".
func these(words []string) string { return enumerate(words, "and") }

// oneOfThese formats a list of alternatives: "a, b or c".
func oneOfThese(words []string) string { return enumerate(words, "or") }

func enumerate(words []string, last string) string {
	words = slices.Compact(slices.Clone(words))
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	end := len(words) - 1
	return strings.Join(words[:end], ", ") + " " + last + " " + words[end]
}
