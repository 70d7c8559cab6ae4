// Package workertest holds the black-box tests of package reprise: workers and
// clients against the embedded broker and, where they are available, RabbitMQ nodes.
//
// The tests are not in the directory of package reprise, because the modules that
// the tests import would become dependencies of every program that imports the
// library. The package contains no other code, and no package may import it.
package workertest
