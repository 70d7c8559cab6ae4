// Package docstest tests the commands in the documentation. TestDocuments runs the commands of each Markdown file in
// order. Each file gets a new home directory and a new clone of the working tree.
//
// The language of a code block determines its meaning:
//
//	sh       commands, which must succeed; a command with & at its end runs until the document ends
//	console  commands after "$ ", each followed by its expected output
//	text     no commands: a diagram, or the syntax of a command
//	other    a file, such as go or yaml; a Go program must compile
//
// A comment before a block can contain instructions:
//
//	<!-- not run: REASON -->   do not run the block
//	<!-- until: TEXT; TEXT --> run the last commands of the block concurrently: wait until each
//	                           has printed its text, and interrupt all of them at the end
//	<!-- output -->            the following text block is the output of the commands above
//
// A comment between blocks that begins with a line "<!-- setup" contains commands that the document expects the reader
// to have run. $BLOCK_GO, $BLOCK_YAML and so on are files with the last block of that language. The function save copies all
// blocks that begin with a comment such as "# reprise.yaml" into the current directory.
//
// The test compares output line by line. The commands must print each documented line. Numbers, times, IDs and white
// space may differ, and "…" matches any text. The test ignores log lines, which begin with the time of day.
//
// Each document runs in separate Linux namespaces for networks and processes. The commands can therefore use the
// documented ports, and cannot access other networks. A broker with the standard login listens on port 5672, as a reader may
// have one; the test fails if the commands declare queues in it. When the document ends, all its processes are killed. The caches
// of Go and the RabbitMQ releases that scripts/rabbitmq has unpacked are shared with the machine, because compiling and
// unpacking them again would take minutes per document.
package docstest
