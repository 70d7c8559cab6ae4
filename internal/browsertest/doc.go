// Package browsertest tests a console, which uses the embedded broker, an ingest and a replayer, in a headless Chromium.
// The program demo serves the console with generated failures, and takes screenshots of all pages.
package browsertest
