// Package framework understands the failed messages of programs that use other frameworks: the error that the framework wrote, the
// queue in which the message failed, the target of a replay, and the parts that a replay takes off so that the framework starts
// again with the first attempt. It is pure: it neither reads nor sends messages.
//
// A file describes each framework. The fixtures in testdata are messages of the frameworks.
package framework
