package archtest

// Exceptions are violations that remain to be removed. A test fails if one of them is no longer needed.
var Exceptions = []string{
	"place internal/publish",
	". → github.com/rabbitmq/amqp091-go",
	"files of .",
	"package comment of internal/amqpwire",
	"package comment of reprisetest",
}
