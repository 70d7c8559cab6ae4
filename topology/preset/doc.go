// Package preset holds published retry designs as they are deployed, each as a
// small struct whose zero value is the design with its own numbers. A program
// that uses one takes part in a running system of that design: names,
// arguments and headers are exact.
//
//	p := preset.CoverArt{}
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue:    "cover-art-archive.index",
//		Strategy: p.Strategy(),
//		Handler:  index,
//	})
package preset
