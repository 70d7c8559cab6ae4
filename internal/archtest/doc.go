// Package archtest checks the layout of the project: imports run down the layers of layers.go, each package uses the modules
// that modules.go allows it, and files, folders and package comments have the form that shape.go describes.
//
// `make lint` runs its tests. Imports of _test.go files are free, since tests are where the two sides meet. Exceptions that
// remain to be removed are in exceptions.go.
package archtest
