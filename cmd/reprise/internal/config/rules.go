package config

import (
	"errors"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
)

// rules reads the policy for particular failures. The type of the handler determines the keys that distinguish
// failures:
//
//	rules:
//	  - {status: [503, 507], attempts: 50, backoff: {fixed: 10m}}   # http
//	  - {exit: 70, park: true}                                      # exec; process: the code of a process that exits
//
// A rule cannot change failures that park a message immediately (exit 65, most 4xx statuses).
func (v value) rules(w *Worker, refuseIgnored func(*fields)) []reprise.Rule {
	rules, _ := list("a list of rules such as [{status: 503, attempts: 50}]", mapping("a rule", func(f *fields, r *reprise.Rule) {
		switch {
		case w.HTTP != nil:
			r.Match = f.statuses()
			f.refuse("applies to exec, and this worker has http; write status: 503", "exit")
		case w.Exec != nil:
			r.Match = f.exits()
			f.refuse("applies to http, and this worker has exec; write exit: 75", "status")
		case w.Process != nil:
			r.Match = f.exits()
			f.refuse("applies to http, and this worker has process; write exit: 70 for processes that exit with this code", "status")
		default: // the missing handler is reported separately
			f.asked = append(f.asked, "status", "exit")
		}
		if read(f, "park", &r.Park, value.boolean); r.Park {
			f.refuse("does not apply to park: true, which disables retries: remove it", "attempts", "give_up_after", "backoff")
		}
		if read(f, "uncounted", &r.Uncounted, value.boolean); r.Uncounted {
			f.refuse("does not apply to uncounted: true, which does not limit attempts: remove it", "attempts", "give_up_after", "park")
		}
		refuseIgnored(f)
		read(f, "attempts", &r.MaxAttempts, integer(1, MaxAttempts))
		read(f, "give_up_after", &r.GiveUpAfter, duration(time.Nanosecond))
		read(f, "backoff", &r.Backoff, value.backoff)
	}))(v)
	return rules
}

func (f *fields) statuses() func(error) bool {
	codes := f.codes("status", 100, 599, func(code int) string {
		switch {
		case code/100 == 2:
			return "is a success"
		case !handler.Retried(code):
			return "parks immediately, regardless of rules"
		}
		return ""
	})
	return func(err error) bool {
		e, ok := errors.AsType[*handler.StatusError](err)
		return ok && slices.Contains(codes, e.Code)
	}
}

func (f *fields) exits() func(error) bool {
	codes := f.codes("exit", 0, 255, func(code int) string {
		switch code {
		case 0:
			return "is a success"
		case handler.ExitDataErr:
			return "parks immediately, regardless of rules"
		}
		return ""
	})
	return func(err error) bool {
		e, ok := errors.AsType[*handler.ExitError](err)
		return ok && slices.Contains(codes, e.Code)
	}
}

// codes reads the codes of a rule: one number or a list. It refuses a code if useless returns a reason why the rule
// would never apply to that code.
func (f *fields) codes(key string, lowest, highest int, useless func(code int) string) (codes []int) {
	one := func(v value) (int, bool) {
		code, ok := integer(lowest, highest)(v)
		if reason := useless(code); ok && reason != "" {
			v.fail("%s %d %s: remove it", key, code, reason)
		}
		return code, ok
	}
	written := f.with(key, func(x value) {
		if x.kind() == "a list" {
			codes, _ = list("a number or a list of numbers such as [503, 507]", one)(x)
		} else if code, ok := one(x); ok {
			codes = []int{code}
		}
	})
	if !written {
		f.missing("a rule needs "+key+": set the failures that it applies to", key, "exit", "status")
	}
	return codes
}
