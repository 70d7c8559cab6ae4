// Package simulation runs whole systems in virtual time: a broker in memory or on a disk, workers, publishers and programs
// that do not use Reprise, with injected faults in the network, the disk and the processes.
//
//	seed ─► Script: Shape + Steps ─► life (a synctest bubble) ─► faults end ─► quiet ─► checks ─► Result
//	                                                                                      │
//	                                       the shortest script that still fails ◄── Shrink ┘
//
// A life is one run of a simulated system, from its start until no work remains. Its [Script] is drawn from the seed before
// the life begins. Each [Step] has a separate seed, so that the removal of a step does not change the other steps. The seed
// determines the script, but not the order in which goroutines run. A script that has failed once may need several runs to
// fail again.
//
// At the end of a life, all faults are removed. When the life is quiet, the checks compare its final state with the
// documented promises. The promises are in docs/guarantees.md, docs/durability.md, docs/duplicates.md,
// docs/failed-messages.md, docs/delays.md, docs/ordering.md and the package comment of outbox. A check permits an exception only for a fault
// that occurred in this life; see [Life.Disturb].
//
// Each file registers its parts in an init function with [RegisterAct], [RegisterActor] and [RegisterCheck].
//
// docs/simulation.md describes how to run the simulation and how to analyze a failure.
package simulation
