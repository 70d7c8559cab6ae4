// Package vhosttest tests virtual hosts with their stores.
package vhosttest
