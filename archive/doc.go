// Package archive stores failed messages in an SQL database, shows them in a web console, and replays them.
//
//	failed queues ─► archive ◄─► Handler ◄─► browsers, programs, reprise failed
//	work queues ◄──────┘
//
// A program embeds an archive with a console as follows (see the example):
//
//	a, err := archive.Open(ctx, archive.Config{DB: db, Dialect: archive.SQLite, Queues: []string{"orders.failed"}})
//	client, err := reprise.Dial(ctx, url, &reprise.Config{Observer: a.Observer()})
//	a.Connect(client)
//	go http.ListenAndServe("127.0.0.1:15600", a.Handler())
//	err = a.Run(ctx)
//
// An archive has three phases. Open opens the database; from then on, the Handler serves the console, even without a
// broker. Connect passes the connection to the broker. Run then moves messages from the failed queues into the archive,
// sends replays, and records the history of the queues, until its context is canceled. Each message is stored before its
// delivery is acknowledged, so a crash can store a message twice, but not lose it.
//
// Several processes may share a database, in one or several programs. Only one of them at a time empties a failed queue or
// sends a replay; if it stops, another takes over.
//
// The HTTP API of the Handler does everything else: search, edit, replay, discard, export, erase. docs/failed-messages.md
// explains it, and /api/v1/openapi.json describes it. The command reprise failed uses the same API.
//
// Anybody on this machine has access to a console without tokens. The console refuses requests through proxies, and other
// hosts in the Host header. For access from other machines, configure Console.Tokens and HTTPS.
package archive
