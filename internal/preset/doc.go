// Package preset provides published retry designs. Each design is a struct. Its zero value has the published settings, or
// defaults for settings that the design does not specify. Names, arguments and headers match the deployed systems (for
// CDNPurge, set the names), so a program that uses a preset can join a running system of that design.
//
//	p := preset.CoverArt{}
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue:    "cover-art-archive.index",
//		Strategy: p.Strategy(),
//		Handler:  index,
//	})
package preset
