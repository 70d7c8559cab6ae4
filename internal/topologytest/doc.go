// Package topologytest tests package topology with libraries that its users do not need.
package topologytest
