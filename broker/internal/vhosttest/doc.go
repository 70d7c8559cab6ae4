// Package vhosttest tests that virtual hosts and their objects survive restarts and crashes.
package vhosttest
