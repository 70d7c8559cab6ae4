package simulation

// foreign is a program that was written from a published design with an AMQP client and does not know of Reprise.
type foreign struct{}
