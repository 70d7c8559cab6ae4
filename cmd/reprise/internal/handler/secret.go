package handler

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// hidden replaces a secret, as in [url.URL.Redacted].
const hidden = "xxxxx"

// leastSecret is the minimum length of a hidden secret, in bytes. A shorter secret would match parts of ordinary words.
const leastSecret = 4

// shownURL returns u without its fragment, with placeholders for the password and the values of parameters.
func shownURL(u *url.URL) string {
	shown := *u
	var parameters []string
	for parameter := range strings.SplitSeq(u.RawQuery, "&") {
		if name, _, found := strings.Cut(parameter, "="); found {
			parameters = append(parameters, name+"="+hidden)
		} else if parameter != "" {
			parameters = append(parameters, hidden)
		}
	}
	shown.RawQuery, shown.Fragment, shown.RawFragment = strings.Join(parameters, "&"), "", ""
	return shown.Redacted()
}

// hider returns a replacer that hides secrets, and the password and the parameter values of u.
func hider(secrets []string, u *url.URL) *strings.Replacer {
	secrets = slices.Clone(secrets)
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password)
	}
	for parameter := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, found := strings.Cut(parameter, "=")
		if !found {
			value = name
		}
		secrets = append(secrets, value)
		if plain, err := url.QueryUnescape(value); err == nil {
			secrets = append(secrets, plain)
		}
	}
	var all []string
	for _, s := range secrets {
		all = append(all, s, url.PathEscape(s), url.QueryEscape(s))
	}
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < leastSecret })
	// The longest secret comes first, because one secret may contain another.
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, s := range all {
		pairs = append(pairs, s, hidden)
	}
	return strings.NewReplacer(pairs...)
}
