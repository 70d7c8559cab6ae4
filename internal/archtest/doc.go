// Package archtest checks the layout of the project. A package may import only packages of lower layers (see layers.go)
// and the modules that modules.go permits. shape.go checks the form of files, folders and package comments.
//
// `make lint` runs these tests. The rules do not apply to imports of _test.go files, because tests combine the two sides
// of the diagram in layers.go. exceptions.go lists violations that remain to be removed.
package archtest
