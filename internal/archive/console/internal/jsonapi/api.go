// Package jsonapi implements the JSON API under /api/v1. [Operations] lists the operations with their documentation.
// openapi.json is generated from this list and from the types of the bodies with their comments:
//
//	go test ./internal/archive/console/internal/jsonapi -update
package jsonapi

import (
	"bytes"
	_ "embed"
	"net/http"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/archive/waiting"
	"github.com/reprisemq/reprise/internal/params"
)

// Description is the OpenAPI description of the API. TestDescription generates it.
//
//go:embed openapi.json
var Description []byte

const base = "/api/v1"

// Parameters that several operations have.
var (
	filterParams    = failed.ParamsOf(new(failed.Filter))
	actParams       = api.ActParams(new(store.ActFilter))
	groupParams     = new(api.GroupFilter).Params()
	waitingParams   = new(store.WaitingFilter).Params()
	scheduledParams = new(api.ScheduledFilter).Params()
	historyParams   = params.Params{
		{Name: "queue", Of: new(api.Text), Help: "The work queue. Default: all."},
		{Name: "range", Of: new(string), Help: "1h, 24h or 7d. Default: 24h."},
	}
	pageParams = params.Params{
		{Name: "after", Of: new(string), Help: "Value of next of the previous page."},
		{Name: "size", Of: new(int), Help: "Maximum number of items: from 1 to 1000. Default: 50."},
	}
	dryRun = params.Params{{Name: "dry_run", Of: new(bool), Help: "Only count the affected messages."}}
)

// param returns a single parameter.
func param(name string, of any, help string) params.Params {
	return params.Params{{Name: name, Of: of, Help: help}}
}

// Operations returns the operations of the API.
func Operations() []Operation {
	const sameRevision = "409 if the message has another revision."
	return []Operation{
		{"GET", "/openapi.json", access.View, "This description", "", nil, responds[map[string]any](http.StatusOK, describe)},
		{"GET", "/me", access.View, "Show the current user", "", nil, answer(me)},

		{"GET", "/messages", access.View, "List messages, the latest failure first", "", slices.Concat(filterParams, pageParams), page(messages)},
		{"GET", "/messages/count", access.View, "Count messages", "", filterParams, answer(count)},
		{
			"GET", "/messages/export", access.View, "Export messages as JSON Lines (oldest failure first) or CSV (latest failure first)",
			"JSON Lines with secrets require the role admin. The CSV has the fields of Summary, without bodies and headers. An apostrophe precedes values that a spreadsheet would treat as a formula.",
			slices.Concat(filterParams, param("format", new(string), "jsonl or csv. Default: jsonl.")),
			Endpoint{handle: exportMessages, Responses: map[int]Body{http.StatusOK: media(jsonLines, csvType)}, long: true},
		},
		{"POST", "/messages/import", access.Admin, "Import exported messages", "The body has one message per line.", nil, answer(importMessages).takes(media(jsonLines)).upTo(web.AnyBody)},
		{"GET", "/messages/{id}", access.View, "Show a message", "", nil, byID(message)},
		{
			"GET", "/messages/{id}/body", access.View, "Download the body that a replay sends", "", param("original", new(bool), "Return the received body instead."),
			Endpoint{handle: body, Responses: map[int]Body{http.StatusOK: media("application/octet-stream")}},
		},
		{"GET", "/messages/{id}/diff", access.View, "List the edits of a message", "", nil, byID(diff)},
		{"GET", "/messages/{id}/revisions", access.View, "List the time and user of each edit, oldest first", "", nil, byID(revisions)},
		{"GET", "/messages/{id}/revisions/{number}", access.View, "Show the content of a revision, even of a reverted edit", "", nil, byID(revision)},
		{"PUT", "/messages/{id}/edit", access.Operate, "Edit the content that a replay sends", sameRevision, nil, askedByID(edit).upTo(web.EditBody)},
		{
			"DELETE", "/messages/{id}/edit", access.Operate, "Revert edits", sameRevision,
			param("revision", new(int64), "Revision that the client has read. Required."), byID(revert),
		},
		{
			"POST", "/messages/{id}/replay", access.Operate, "Edit a message and replay it in one transaction", sameRevision + " The message is then neither edited nor replayed.", nil,
			reads[api.EditAndReplay](responds[api.Replay](http.StatusCreated, editAndReplay)).upTo(web.EditBody),
		},
		{"POST", "/discard", access.Operate, "Discard messages in state failed", "", dryRun, asked(discard)},
		{"POST", "/restore", access.Operate, "Undo discard", "", dryRun, asked(restore)},
		{
			"POST", "/erase", access.Admin, "Permanently delete the contents of messages",
			"Deletes bodies, headers, errors, edits and IDs, and entries of the audit log that contain strings of the filter. Discards messages in state failed, which cannot be restored.",
			dryRun, asked(erase),
		},
		{"POST", "/purge", access.Admin, "Remove messages that are older than the retention of the archive", "", dryRun, answer(purge)},

		{"GET", "/groups", access.View, "List groups of failures with the same fingerprint", "", slices.Concat(groupParams, pageParams), page(groups)},
		{"GET", "/groups/{id}", access.View, "Show a group", "", nil, byID(group)},
		{"PUT", "/groups/{id}/mute", access.Operate, "Exclude a group from notifications", "", nil, askedByID(mute)},
		{"DELETE", "/groups/{id}/mute", access.Operate, "Include a group in notifications again", "", nil, byID(unmute)},
		{"POST", "/groups/merge", access.Operate, "Merge groups of one work queue, or rename a group", "", nil, asked(merge)},
		{"DELETE", "/groups/{id}/merge", access.Operate, "Undo the merges into a group", "", nil, byID(unmerge)},
		{"POST", "/groups/regroup", access.Operate, "Move messages to the groups in which they would arrive now", "", nil, asked(regroup)},
		{"GET", "/queues", access.View, "Count archived messages by work queue", "", nil, answer(queues)},
		{
			"POST", "/queues/purge", access.Admin, "Remove messages from a queue",
			"Removes the oldest messages, at most 5000 per request. Saves them in the archive in state discarded, unless drop is true. If the request fails, it may have removed some messages.",
			dryRun, asked(purgeQueue),
		},
		{
			"POST", "/queues/peek", access.Operate, "Show the first messages of a queue and put them back",
			"AMQP cannot read a queue without taking the messages out, so a look has a cost, which a dry run returns. 409 if the look would count as a failed delivery, unless counts is true.",
			dryRun, asked(peekQueue),
		},
		{
			"POST", "/publish", access.Operate, "Publish a message and record it in the audit log",
			"The message is persistent, mandatory and confirmed. After the status 502, the broker may have stored the message. at, in, order_key and unique need an outbox: 409 without one; after the status 503, it may have stored the message.", nil, asked(publish).upTo(web.EditBody),
		},
		{"GET", "/ledger", access.View, "Show the reconciliation of each account", "", nil, answer(ledgerReport)},
		{"POST", "/ledger/accept", access.Operate, "Restart an account after its differences were investigated", "", nil, asked(accept)},

		{"GET", "/replays", access.View, "List replays, newest first", "", pageParams, page(replays)},
		{"POST", "/replays", access.Operate, "Begin a replay", "With dry_run, the status is 200, and the response is a preview.", dryRun, reads[api.Plan](Endpoint{
			handle: beginReplay, Responses: map[int]Body{http.StatusOK: bodyOf[api.Preview](), http.StatusCreated: bodyOf[api.Replay]()},
		})},
		{"GET", "/replays/{id}", access.View, "Show a replay", "", nil, byID(oneReplay)},
		{"POST", "/replays/{id}/cancel", access.Operate, "Cancel a replay; unsent messages return to state failed", "", nil, askedByID(cancel)},

		{
			"GET", "/doctor", access.Operate, "List declarations and states of the broker that lose, block or repeat messages",
			"The findings of reprise doctor in the virtual host of the console, at most 10 seconds old. 503 without the management API of the broker.", nil, answer(doctorReport).takesLong(),
		},

		{"GET", "/workers", access.View, "List the workers of all processes", "", nil, answer(workers)},
		{"POST", "/workers/pause", access.Operate, "Pause a queue, or one worker of it", "", nil, asked(pauseWorkers)},
		{"POST", "/workers/resume", access.Operate, "End a pause", "", nil, asked(resumeWorkers)},
		{
			"POST", "/workers/keys", access.Operate, "Retry or park messages of a blocked key",
			"The broker stores the act, and the owner of the key carries it out, also after a crash. 404 if no worker lists the key as blocked.", dryRun, asked(controlKey),
		},

		{
			"GET", "/history", access.View, "Throughput, failures and handling times of queues, by interval",
			"The interval is 1 minute for 1h, 5 minutes for 24h, and 1 hour for 7d.", historyParams, answer(pastOf),
		},
		{"GET", "/marks", access.View, "List the marks in the history, newest first", "", nil, answer(marks)},
		{"POST", "/marks", access.Operate, "Mark a time in the history, such as a deployment", "The history keeps the newest 1000 marks.", nil, asked(addMark)},
		{"DELETE", "/marks/{id}", access.Operate, "Remove a mark", "Returns the removed mark.", nil, byID(removeMark)},

		{"GET", "/waiting", access.View, "List messages that wait for a retry, the next due first", "", slices.Concat(waitingParams, pageParams), page(waitingMessages)},
		{"GET", "/waiting/summary", access.View, "Count messages that wait for a retry, by queue and group", "", waitingParams, answer(waitingSummary)},
		{"POST", "/waiting/retry", access.Operate, "Retry waiting messages now", "", dryRun, actOnWaiting(waiting.RetryNow)},
		{"POST", "/waiting/postpone", access.Operate, "Postpone waiting messages", "", dryRun, actOnWaiting(waiting.Postpone)},
		{"POST", "/waiting/park", access.Operate, "Move waiting messages to the failed queue", "", dryRun, actOnWaiting(waiting.ParkNow)},

		{"GET", "/scheduled", access.View, "List messages of the outbox, the next due first", "409 without an outbox.", slices.Concat(scheduledParams, pageParams), page(scheduled)},
		{"GET", "/scheduled/status", access.View, "Show the state of the outbox", "", nil, answer((*web.Call).OutboxStatus)},
		{"GET", "/scheduled/{id}", access.Operate, "Show a message of the outbox", "", nil, byID((*web.Call).OneScheduled)},
		{"POST", "/scheduled/cancel", access.Operate, "Delete messages of the outbox", "", dryRun, actOnScheduled(false)},
		{"POST", "/scheduled/move", access.Operate, "Change the time at which messages of the outbox leave", "Without at and in: now.", dryRun, actOnScheduled(true)},
		{
			"GET", "/cron", access.View, "List periodic messages", "", param("count", new(int), "Number of occurrences of each entry: from 1 to 100. Default: 1."), answer(cron),
		},
		{
			"POST", "/cron/run", access.Operate, "Make a periodic message occur now", "A process that has the entry publishes the message. The other occurrences do not change.", nil, asked((*web.Call).RunCron),
		},
		{
			"POST", "/cron/remove", access.Operate, "Remove a periodic message from the list", "A process that still has the entry continues to publish the message, and lists it again from the next occurrence on.", nil, asked((*web.Call).RemoveCron),
		},

		{"GET", "/acts", access.View, "The audit log, newest first", "", slices.Concat(actParams, pageParams), page(acts)},
	}
}

// Routes returns the routes of all operations, and routes for unknown paths.
func Routes() []web.Route {
	var all []web.Route
	for _, o := range Operations() {
		all = append(all, o.route())
	}
	return append(all, absentRoutes()...)
}

func describe(c *web.Call) error {
	c.W.Header().Set("Content-Type", "application/json")
	// server occurs exactly once in the description.
	const server = `"url": "` + base + `"`
	// An error means that the client has disconnected.
	_, _ = c.W.Write(bytes.Replace(Description, []byte(server), []byte(strings.Replace(server, "/", c.Prefix+"/", 1)), 1))
	return nil
}

func me(c *web.Call) (api.Me, error) {
	return api.Me{Actor: string(c.Who.Actor), Role: c.Who.Role.String()}, nil
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// absentRoutes returns routes that respond with a JSON error to unknown paths under /api. Their patterns contain
// methods, so that they do not conflict with the pattern of the not-found page, which matches all other paths.
func absentRoutes() []web.Route {
	var absent []web.Route
	for _, method := range methods {
		absent = append(absent, web.Route{Method: method, Path: "/api/", Role: access.View, Query: web.AnyParams, Handle: notFound})
	}
	return absent
}

func notFound(c *web.Call) error {
	var allowed []string
	for _, method := range methods {
		r := c.R.Clone(c.R.Context())
		r.Method = method
		if c.Routed(r, "/api/v1/") {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return &fault.Failure{Status: http.StatusNotFound, Text: "path not found", Advice: "see /api/v1/openapi.json"}
	}
	c.W.Header().Set("Allow", strings.Join(allowed, ", "))
	return &fault.Failure{
		Status: http.StatusMethodNotAllowed, Text: "this path does not support " + c.R.Method, Advice: "use " + strings.Join(allowed, " or "),
	}
}
