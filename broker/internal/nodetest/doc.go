// Package nodetest tests a node with its store and its management API on disks that are slow, full, hung or broken.
package nodetest
