// Package browsertest tests a console in a headless Chromium. The console uses the embedded broker, an ingest and a
// replayer. The program demo serves the console with generated failures, and takes screenshots of all pages.
package browsertest
