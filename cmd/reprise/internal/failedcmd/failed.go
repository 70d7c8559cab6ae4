// Package failedcmd implements reprise failed: lists, edits, replays and discards of failed messages in an archive.
package failedcmd

// Command is reprise failed.
type Command struct {
	Ls      lsCmd      `cmd:"" help:"List messages, the latest failure first."`
	Groups  groupsCmd  `cmd:"" help:"List the error groups."`
	Show    showCmd    `cmd:"" help:"Show a message."`
	Replay  replayCmd  `cmd:"" help:"Replay messages."`
	Replays replaysCmd `cmd:"" help:"List replays, or cancel a replay."`
	Edit    editCmd    `cmd:"" help:"Edit the body and headers of a message."`
	Discard discardCmd `cmd:"" help:"Discard messages."`
	Undo    undoCmd    `cmd:"" help:"Restore discarded messages."`
	Acts    actsCmd    `cmd:"" help:"List the audit log."`
	Merge   mergeCmd   `cmd:"" help:"Merge groups, or rename a group."`
	Unmerge unmergeCmd `cmd:"" help:"Undo the merges into a group."`
	Regroup regroupCmd `cmd:"" help:"Apply group rules to existing messages."`
	Mute    muteCmd    `cmd:"" help:"Exclude a group from notifications."`
	Unmute  unmuteCmd  `cmd:"" help:"Include a group in notifications again."`
	Export  exportCmd  `cmd:"" help:"Write messages as JSON Lines."`
	Import  importCmd  `cmd:"" help:"Import exported messages."`
	Erase   eraseCmd   `cmd:"" help:"Delete the contents of messages permanently."`
	Purge   purgeCmd   `cmd:"" help:"Remove messages that exceed the retention time."`
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
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
