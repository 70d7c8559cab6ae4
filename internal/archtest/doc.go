// Package archtest checks the layout of the project: imports only go down the layers of layers.go, each package imports
// only the modules that modules.go permits, and files, folders and package comments have the form that shape.go
// requires.
//
// `make lint` runs these tests. The rules do not apply to imports of _test.go files, because tests combine both sides.
// exceptions.go lists violations that remain to be removed.
package archtest
