package framework

// spring: https://docs.spring.io/spring-amqp/reference/amqp/resilience-recovering-from-errors-and-broker-failures.html
// (RepublishMessageRecoverer), and republishToDlq of the binder of Spring Cloud Stream. They record an exchange and a key, but
// no queue. The broker's x-death has the queue if an earlier attempt was rejected.
var spring = framework{
	name: "Spring",
	read: func(m message) (failure, bool) {
		f := failure{text: m.text("x-exception-message"), stack: m.text("x-exception-stacktrace"), exchange: m.text("x-original-exchange"), key: m.text("x-original-routingKey")}
		if f.exchange == "" {
			f.queue = f.key
		} else {
			f.queue = m.deadQueue()
		}
		if kind := javaKind(f.stack); kind != "" {
			f.text, f.kind = kind, ""
		}
		_, thrown := m.Headers["x-exception-stacktrace"]
		_, from := m.Headers["x-original-routingKey"]
		return f, thrown && from
	},
	owns: named("x-exception-message", "x-exception-stacktrace", "x-original-exchange", "x-original-routingKey", "retry-count"),
}
