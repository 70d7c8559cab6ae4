// Package preset provides published retry designs. Each design is a struct whose zero value has the values of the
// design. The names, arguments and headers match the deployed systems, so a program that uses a preset can join a
// running system of that design.
//
//	p := preset.CoverArt{}
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue:    "cover-art-archive.index",
//		Strategy: p.Strategy(),
//		Handler:  index,
//	})
package preset
