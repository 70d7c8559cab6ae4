// Package simulation runs whole systems in virtual time: a broker in memory or on a disk, workers, publishers and programs
// that do not use Reprise, with faults of the network, the disk and the processes.
//
//	seed ─► Script: Shape + Steps ─► life (a synctest bubble) ─► faults end ─► quiet ─► checks ─► Result
//	                                                                                      │
//	                                       the shortest script that still fails ◄── Shrink ┘
//
// A life is what happens between the start of a system and the moment when nothing is left to do in it. Its [Script] is drawn
// from the seed before anything runs. Each [Step] has its own seed, so that a step does not change if another one is removed.
// The seed determines the script and not the order in which goroutines run: a script that has failed once may need some
// tries to fail again.
//
// At the end all faults are ended. The life goes on until it is quiet, and then the checks compare what is left with the
// promises of docs/guarantees.md, docs/durability.md, docs/duplicates.md, docs/failed-messages.md and docs/delays.md. A check
// allows an exception only for a fault that struck in this life: see [Life.Disturb].
//
// A file registers what it adds in its init function: [RegisterAct], [RegisterActor], [RegisterCheck]. No other file changes.
//
// docs/simulation.md describes how to run it and how to read a failure.
package simulation
