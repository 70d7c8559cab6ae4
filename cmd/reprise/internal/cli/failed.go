package cli

type failedCmd struct {
	Ls      failedLsCmd      `cmd:"" help:"List messages, the latest failure first."`
	Groups  failedGroupsCmd  `cmd:"" help:"List the error groups."`
	Show    failedShowCmd    `cmd:"" help:"Show a message."`
	Replay  failedReplayCmd  `cmd:"" help:"Replay messages."`
	Replays failedReplaysCmd `cmd:"" help:"List replays, or cancel a replay."`
	Edit    failedEditCmd    `cmd:"" help:"Edit the body and headers of a message."`
	Discard failedDiscardCmd `cmd:"" help:"Discard messages."`
	Undo    failedUndoCmd    `cmd:"" help:"Restore discarded messages."`
	Acts    failedActsCmd    `cmd:"" help:"List the audit log."`
	Merge   failedMergeCmd   `cmd:"" help:"Merge groups, or rename a group."`
	Unmerge failedUnmergeCmd `cmd:"" help:"Undo the merges into a group."`
	Regroup failedRegroupCmd `cmd:"" help:"Apply group rules to existing messages."`
	Mute    failedMuteCmd    `cmd:"" help:"Exclude a group from notifications."`
	Unmute  failedUnmuteCmd  `cmd:"" help:"Include a group in notifications again."`
	Export  failedExportCmd  `cmd:"" help:"Write messages as JSON Lines."`
	Import  failedImportCmd  `cmd:"" help:"Import exported messages."`
	Erase   failedEraseCmd   `cmd:"" help:"Delete the contents of messages permanently."`
	Purge   failedPurgeCmd   `cmd:"" help:"Remove messages that exceed the retention time."`
}

// Help implements kong.HelpProvider.
func (failedCmd) Help() string {
	return `The commands need a running console: reprise console, or reprise up with console: in its file.

Examples:
  reprise failed groups
  reprise failed ls --group 3 --since 2h
  reprise failed show 17
  reprise failed edit 17
  reprise failed replay 17
  reprise failed replay --group 3 --canary 1m --rate 50/s
  reprise failed discard --error 'no such customer' --reason 'test orders'
  reprise failed undo 17

Exit codes: 0 done, 1 failed, 2 invalid flags, 3 a replay that stopped, or that was cancelled before its end.
`
}
