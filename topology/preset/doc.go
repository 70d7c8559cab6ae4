// Package preset provides published retry designs. Each design is a small struct whose zero value has
// the numbers of the design. Names, arguments and headers are exact, so a program that uses a preset
// can join a running system of that design.
//
//	p := preset.CoverArt{}
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue:    "cover-art-archive.index",
//		Strategy: p.Strategy(),
//		Handler:  index,
//	})
package preset
