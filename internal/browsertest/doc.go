// Package browsertest drives the console with a headless Chromium: people find a
// group, open a message, edit it, replay it, and see it succeed, on the embedded
// broker with a real ingest and a real replayer. Its program demo serves the console
// on made-up failures, to be looked at, and takes pictures of all its pages.
package browsertest
