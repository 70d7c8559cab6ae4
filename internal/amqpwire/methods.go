package amqpwire

// Method IDs of AMQP 0-9-1 and of RabbitMQ's extensions.
const (
	IDConnectionStart          MethodID = 10<<16 | 10
	IDConnectionStartOk        MethodID = 10<<16 | 11
	IDConnectionSecure         MethodID = 10<<16 | 20
	IDConnectionSecureOk       MethodID = 10<<16 | 21
	IDConnectionTune           MethodID = 10<<16 | 30
	IDConnectionTuneOk         MethodID = 10<<16 | 31
	IDConnectionOpen           MethodID = 10<<16 | 40
	IDConnectionOpenOk         MethodID = 10<<16 | 41
	IDConnectionClose          MethodID = 10<<16 | 50
	IDConnectionCloseOk        MethodID = 10<<16 | 51
	IDConnectionBlocked        MethodID = 10<<16 | 60
	IDConnectionUnblocked      MethodID = 10<<16 | 61
	IDConnectionUpdateSecret   MethodID = 10<<16 | 70
	IDConnectionUpdateSecretOk MethodID = 10<<16 | 71
	IDChannelOpen              MethodID = 20<<16 | 10
	IDChannelOpenOk            MethodID = 20<<16 | 11
	IDChannelFlow              MethodID = 20<<16 | 20
	IDChannelFlowOk            MethodID = 20<<16 | 21
	IDChannelClose             MethodID = 20<<16 | 40
	IDChannelCloseOk           MethodID = 20<<16 | 41
	IDAccessRequest            MethodID = 30<<16 | 10
	IDAccessRequestOk          MethodID = 30<<16 | 11
	IDExchangeDeclare          MethodID = 40<<16 | 10
	IDExchangeDeclareOk        MethodID = 40<<16 | 11
	IDExchangeDelete           MethodID = 40<<16 | 20
	IDExchangeDeleteOk         MethodID = 40<<16 | 21
	IDExchangeBind             MethodID = 40<<16 | 30
	IDExchangeBindOk           MethodID = 40<<16 | 31
	IDExchangeUnbind           MethodID = 40<<16 | 40
	IDExchangeUnbindOk         MethodID = 40<<16 | 51
	IDQueueDeclare             MethodID = 50<<16 | 10
	IDQueueDeclareOk           MethodID = 50<<16 | 11
	IDQueueBind                MethodID = 50<<16 | 20
	IDQueueBindOk              MethodID = 50<<16 | 21
	IDQueuePurge               MethodID = 50<<16 | 30
	IDQueuePurgeOk             MethodID = 50<<16 | 31
	IDQueueDelete              MethodID = 50<<16 | 40
	IDQueueDeleteOk            MethodID = 50<<16 | 41
	IDQueueUnbind              MethodID = 50<<16 | 50
	IDQueueUnbindOk            MethodID = 50<<16 | 51
	IDBasicQos                 MethodID = 60<<16 | 10
	IDBasicQosOk               MethodID = 60<<16 | 11
	IDBasicConsume             MethodID = 60<<16 | 20
	IDBasicConsumeOk           MethodID = 60<<16 | 21
	IDBasicCancel              MethodID = 60<<16 | 30
	IDBasicCancelOk            MethodID = 60<<16 | 31
	IDBasicPublish             MethodID = 60<<16 | 40
	IDBasicReturn              MethodID = 60<<16 | 50
	IDBasicDeliver             MethodID = 60<<16 | 60
	IDBasicGet                 MethodID = 60<<16 | 70
	IDBasicGetOk               MethodID = 60<<16 | 71
	IDBasicGetEmpty            MethodID = 60<<16 | 72
	IDBasicAck                 MethodID = 60<<16 | 80
	IDBasicReject              MethodID = 60<<16 | 90
	IDBasicRecoverAsync        MethodID = 60<<16 | 100
	IDBasicRecover             MethodID = 60<<16 | 110
	IDBasicRecoverOk           MethodID = 60<<16 | 111
	IDBasicNack                MethodID = 60<<16 | 120
	IDConfirmSelect            MethodID = 85<<16 | 10
	IDConfirmSelectOk          MethodID = 85<<16 | 11
	IDTxSelect                 MethodID = 90<<16 | 10
	IDTxSelectOk               MethodID = 90<<16 | 11
	IDTxCommit                 MethodID = 90<<16 | 20
	IDTxCommitOk               MethodID = 90<<16 | 21
	IDTxRollback               MethodID = 90<<16 | 30
	IDTxRollbackOk             MethodID = 90<<16 | 31
)

var methods = map[MethodID]struct {
	name   string // name in the specification
	create func() Method
}{
	IDConnectionStart:          {"connection.start", func() Method { return new(ConnectionStart) }},
	IDConnectionStartOk:        {"connection.start-ok", func() Method { return new(ConnectionStartOk) }},
	IDConnectionSecure:         {"connection.secure", func() Method { return new(ConnectionSecure) }},
	IDConnectionSecureOk:       {"connection.secure-ok", func() Method { return new(ConnectionSecureOk) }},
	IDConnectionTune:           {"connection.tune", func() Method { return new(ConnectionTune) }},
	IDConnectionTuneOk:         {"connection.tune-ok", func() Method { return new(ConnectionTuneOk) }},
	IDConnectionOpen:           {"connection.open", func() Method { return new(ConnectionOpen) }},
	IDConnectionOpenOk:         {"connection.open-ok", func() Method { return new(ConnectionOpenOk) }},
	IDConnectionClose:          {"connection.close", func() Method { return new(ConnectionClose) }},
	IDConnectionCloseOk:        {"connection.close-ok", func() Method { return new(ConnectionCloseOk) }},
	IDConnectionBlocked:        {"connection.blocked", func() Method { return new(ConnectionBlocked) }},
	IDConnectionUnblocked:      {"connection.unblocked", func() Method { return new(ConnectionUnblocked) }},
	IDConnectionUpdateSecret:   {"connection.update-secret", func() Method { return new(ConnectionUpdateSecret) }},
	IDConnectionUpdateSecretOk: {"connection.update-secret-ok", func() Method { return new(ConnectionUpdateSecretOk) }},
	IDChannelOpen:              {"channel.open", func() Method { return new(ChannelOpen) }},
	IDChannelOpenOk:            {"channel.open-ok", func() Method { return new(ChannelOpenOk) }},
	IDChannelFlow:              {"channel.flow", func() Method { return new(ChannelFlow) }},
	IDChannelFlowOk:            {"channel.flow-ok", func() Method { return new(ChannelFlowOk) }},
	IDChannelClose:             {"channel.close", func() Method { return new(ChannelClose) }},
	IDChannelCloseOk:           {"channel.close-ok", func() Method { return new(ChannelCloseOk) }},
	IDAccessRequest:            {"access.request", func() Method { return new(AccessRequest) }},
	IDAccessRequestOk:          {"access.request-ok", func() Method { return new(AccessRequestOk) }},
	IDExchangeDeclare:          {"exchange.declare", func() Method { return new(ExchangeDeclare) }},
	IDExchangeDeclareOk:        {"exchange.declare-ok", func() Method { return new(ExchangeDeclareOk) }},
	IDExchangeDelete:           {"exchange.delete", func() Method { return new(ExchangeDelete) }},
	IDExchangeDeleteOk:         {"exchange.delete-ok", func() Method { return new(ExchangeDeleteOk) }},
	IDExchangeBind:             {"exchange.bind", func() Method { return new(ExchangeBind) }},
	IDExchangeBindOk:           {"exchange.bind-ok", func() Method { return new(ExchangeBindOk) }},
	IDExchangeUnbind:           {"exchange.unbind", func() Method { return new(ExchangeUnbind) }},
	IDExchangeUnbindOk:         {"exchange.unbind-ok", func() Method { return new(ExchangeUnbindOk) }},
	IDQueueDeclare:             {"queue.declare", func() Method { return new(QueueDeclare) }},
	IDQueueDeclareOk:           {"queue.declare-ok", func() Method { return new(QueueDeclareOk) }},
	IDQueueBind:                {"queue.bind", func() Method { return new(QueueBind) }},
	IDQueueBindOk:              {"queue.bind-ok", func() Method { return new(QueueBindOk) }},
	IDQueuePurge:               {"queue.purge", func() Method { return new(QueuePurge) }},
	IDQueuePurgeOk:             {"queue.purge-ok", func() Method { return new(QueuePurgeOk) }},
	IDQueueDelete:              {"queue.delete", func() Method { return new(QueueDelete) }},
	IDQueueDeleteOk:            {"queue.delete-ok", func() Method { return new(QueueDeleteOk) }},
	IDQueueUnbind:              {"queue.unbind", func() Method { return new(QueueUnbind) }},
	IDQueueUnbindOk:            {"queue.unbind-ok", func() Method { return new(QueueUnbindOk) }},
	IDBasicQos:                 {"basic.qos", func() Method { return new(BasicQos) }},
	IDBasicQosOk:               {"basic.qos-ok", func() Method { return new(BasicQosOk) }},
	IDBasicConsume:             {"basic.consume", func() Method { return new(BasicConsume) }},
	IDBasicConsumeOk:           {"basic.consume-ok", func() Method { return new(BasicConsumeOk) }},
	IDBasicCancel:              {"basic.cancel", func() Method { return new(BasicCancel) }},
	IDBasicCancelOk:            {"basic.cancel-ok", func() Method { return new(BasicCancelOk) }},
	IDBasicPublish:             {"basic.publish", func() Method { return new(BasicPublish) }},
	IDBasicReturn:              {"basic.return", func() Method { return new(BasicReturn) }},
	IDBasicDeliver:             {"basic.deliver", func() Method { return new(BasicDeliver) }},
	IDBasicGet:                 {"basic.get", func() Method { return new(BasicGet) }},
	IDBasicGetOk:               {"basic.get-ok", func() Method { return new(BasicGetOk) }},
	IDBasicGetEmpty:            {"basic.get-empty", func() Method { return new(BasicGetEmpty) }},
	IDBasicAck:                 {"basic.ack", func() Method { return new(BasicAck) }},
	IDBasicReject:              {"basic.reject", func() Method { return new(BasicReject) }},
	IDBasicRecoverAsync:        {"basic.recover-async", func() Method { return new(BasicRecoverAsync) }},
	IDBasicRecover:             {"basic.recover", func() Method { return new(BasicRecover) }},
	IDBasicRecoverOk:           {"basic.recover-ok", func() Method { return new(BasicRecoverOk) }},
	IDBasicNack:                {"basic.nack", func() Method { return new(BasicNack) }},
	IDConfirmSelect:            {"confirm.select", func() Method { return new(ConfirmSelect) }},
	IDConfirmSelectOk:          {"confirm.select-ok", func() Method { return new(ConfirmSelectOk) }},
	IDTxSelect:                 {"tx.select", func() Method { return new(TxSelect) }},
	IDTxSelectOk:               {"tx.select-ok", func() Method { return new(TxSelectOk) }},
	IDTxCommit:                 {"tx.commit", func() Method { return new(TxCommit) }},
	IDTxCommitOk:               {"tx.commit-ok", func() Method { return new(TxCommitOk) }},
	IDTxRollback:               {"tx.rollback", func() Method { return new(TxRollback) }},
	IDTxRollbackOk:             {"tx.rollback-ok", func() Method { return new(TxRollbackOk) }},
}

// NewMethod returns a new zero value of the method with the given ID, or nil if the ID is unknown.
func NewMethod(id MethodID) Method {
	if m, known := methods[id]; known {
		return m.create()
	}
	return nil
}

// HasContent reports whether a content header and a body follow the method.
func (id MethodID) HasContent() bool {
	switch id {
	case IDBasicPublish, IDBasicReturn, IDBasicDeliver, IDBasicGetOk:
		return true
	}
	return false
}
