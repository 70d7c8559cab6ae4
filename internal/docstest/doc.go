// Package docstest runs the commands of the documentation as a reader would: those of
// each Markdown file in their order, from a new home directory, in a new clone of the
// working tree. TestDocuments is all there is.
//
// The language of a code block says what it is:
//
//	sh       commands: each must succeed; one with & behind it runs until the document ends
//	console  the same after "$ ", with the output that each is to have below it
//	text     no commands; also a diagram, or the syntax of a command
//	other    a file, such as go or yaml; a Go program must compile
//
// A comment before a block, which nobody sees on the page, says what else there is to know:
//
//	<!-- not run: REASON -->   nothing of the block is run
//	<!-- until: TEXT; TEXT --> its last commands run together; each is left to run when it
//	                           has printed its text, and all are interrupted in the end
//	<!-- output -->            before a text block: it is what the block of commands above prints
//
// Between blocks, a comment that begins with a line "<!-- setup" has commands of what the
// reader has done before, or has elsewhere. $BLOCK_GO, $BLOCK_YAML and so on are the files
// with the last block of that language above.
//
// Output is compared line by line: each line that is documented must have been printed.
// Numbers, times, ids and white space may differ, "…" stands for anything, and lines of
// a log, which begin with the time of day, are not looked at.
//
// Each document has a network and processes of its own (Linux namespaces), so that ports
// are those that it names, and nothing is left behind; there is no other network. The
// caches of Go, and RabbitMQ once scripts/rabbitmq has unpacked it, are shared with the
// machine: to compile and to unpack them anew would take minutes for each document, and
// test nothing of ours.
package docstest
