// Package browsertest tests the console with a headless Chromium, on the embedded broker with an ingest and a replayer. Its tests
// find a group, open a message, edit it, replay it and check that it succeeds. The program demo serves the console with generated
// failures and takes pictures of all pages.
package browsertest
