package amqpwire

// ConnectionStart is the server's first method. It offers a protocol version and the authentication mechanisms.
type ConnectionStart struct {
	VersionMajor     uint8
	VersionMinor     uint8
	ServerProperties Table
	Mechanisms       string // SASL mechanisms, separated by spaces
	Locales          string // message locales, separated by spaces
}

// ID returns [IDConnectionStart].
func (*ConnectionStart) ID() MethodID { return IDConnectionStart }

func (m *ConnectionStart) arguments(c *codec) *codec {
	return c.octet(&m.VersionMajor).octet(&m.VersionMinor).table(&m.ServerProperties).
		longstr(&m.Mechanisms).longstr(&m.Locales)
}

// ConnectionStartOk selects a mechanism and contains its first response.
type ConnectionStartOk struct {
	ClientProperties Table
	Mechanism        string
	Response         string
	Locale           string
}

// ID returns [IDConnectionStartOk].
func (*ConnectionStartOk) ID() MethodID { return IDConnectionStartOk }

func (m *ConnectionStartOk) arguments(c *codec) *codec {
	return c.table(&m.ClientProperties).shortstr(&m.Mechanism).
		longstr(&m.Response).shortstr(&m.Locale)
}

// ConnectionSecure contains a challenge of the SASL mechanism.
type ConnectionSecure struct {
	Challenge string
}

// ID returns [IDConnectionSecure].
func (*ConnectionSecure) ID() MethodID { return IDConnectionSecure }

func (m *ConnectionSecure) arguments(c *codec) *codec {
	return c.longstr(&m.Challenge)
}

// ConnectionSecureOk responds to a challenge of the SASL mechanism.
type ConnectionSecureOk struct {
	Response string
}

// ID returns [IDConnectionSecureOk].
func (*ConnectionSecureOk) ID() MethodID { return IDConnectionSecureOk }

func (m *ConnectionSecureOk) arguments(c *codec) *codec {
	return c.longstr(&m.Response)
}

// ConnectionTune proposes limits to the client.
type ConnectionTune struct {
	ChannelMax uint16 // highest channel number, 0 for no limit
	FrameMax   uint32 // largest frame in bytes, 0 for no limit
	Heartbeat  uint16 // in seconds, 0 for none
}

// ID returns [IDConnectionTune].
func (*ConnectionTune) ID() MethodID { return IDConnectionTune }

func (m *ConnectionTune) arguments(c *codec) *codec {
	return c.short(&m.ChannelMax).long(&m.FrameMax).short(&m.Heartbeat)
}

// ConnectionTuneOk sets the limits of the connection.
type ConnectionTuneOk ConnectionTune

// ID returns [IDConnectionTuneOk].
func (*ConnectionTuneOk) ID() MethodID { return IDConnectionTuneOk }

func (m *ConnectionTuneOk) arguments(c *codec) *codec { return (*ConnectionTune)(m).arguments(c) }

// ConnectionOpen selects a virtual host.
type ConnectionOpen struct {
	VirtualHost string
}

// ID returns [IDConnectionOpen].
func (*ConnectionOpen) ID() MethodID { return IDConnectionOpen }

func (m *ConnectionOpen) arguments(c *codec) *codec {
	return c.shortstr(&m.VirtualHost).emptyShort().bits(nil)
}

// ConnectionOpenOk confirms a connection.open.
type ConnectionOpenOk struct{}

// ID returns [IDConnectionOpenOk].
func (*ConnectionOpenOk) ID() MethodID { return IDConnectionOpenOk }

func (*ConnectionOpenOk) arguments(c *codec) *codec { return c.emptyShort() }

// ConnectionClose asks the peer to close the connection. ClassID and MethodID identify the method that failed, or are
// 0.
type ConnectionClose struct {
	ReplyCode uint16
	ReplyText string // not always UTF-8: servers cut long texts, and quote names that are not UTF-8
	ClassID   uint16
	MethodID  uint16
}

// ID returns [IDConnectionClose].
func (*ConnectionClose) ID() MethodID { return IDConnectionClose }

func (m *ConnectionClose) arguments(c *codec) *codec {
	return c.short(&m.ReplyCode).rawstr(&m.ReplyText).short(&m.ClassID).short(&m.MethodID)
}

// ConnectionCloseOk confirms a connection.close. It is the last method that its sender sends.
type ConnectionCloseOk struct{ noArguments }

// ID returns [IDConnectionCloseOk].
func (*ConnectionCloseOk) ID() MethodID { return IDConnectionCloseOk }

// ConnectionBlocked reports that the server has blocked the connection.
type ConnectionBlocked struct {
	Reason string
}

// ID returns [IDConnectionBlocked].
func (*ConnectionBlocked) ID() MethodID { return IDConnectionBlocked }

func (m *ConnectionBlocked) arguments(c *codec) *codec {
	return c.rawstr(&m.Reason)
}

// ConnectionUnblocked reports that the server has unblocked the connection.
type ConnectionUnblocked struct{ noArguments }

// ID returns [IDConnectionUnblocked].
func (*ConnectionUnblocked) ID() MethodID { return IDConnectionUnblocked }

// ConnectionUpdateSecret replaces the credentials of the connection before they expire.
type ConnectionUpdateSecret struct {
	NewSecret string
	Reason    string
}

// ID returns [IDConnectionUpdateSecret].
func (*ConnectionUpdateSecret) ID() MethodID { return IDConnectionUpdateSecret }

func (m *ConnectionUpdateSecret) arguments(c *codec) *codec {
	return c.longstr(&m.NewSecret).shortstr(&m.Reason)
}

// ConnectionUpdateSecretOk confirms new credentials.
type ConnectionUpdateSecretOk struct{ noArguments }

// ID returns [IDConnectionUpdateSecretOk].
func (*ConnectionUpdateSecretOk) ID() MethodID { return IDConnectionUpdateSecretOk }

// ChannelOpen opens the channel whose number is in the frame.
type ChannelOpen struct{}

// ID returns [IDChannelOpen].
func (*ChannelOpen) ID() MethodID { return IDChannelOpen }

func (*ChannelOpen) arguments(c *codec) *codec { return c.emptyShort() }

// ChannelOpenOk confirms a channel.open.
type ChannelOpenOk struct{}

// ID returns [IDChannelOpenOk].
func (*ChannelOpenOk) ID() MethodID { return IDChannelOpenOk }

func (*ChannelOpenOk) arguments(c *codec) *codec { return c.emptyLong() }

// ChannelFlow asks the peer to pause or resume sending content.
type ChannelFlow struct {
	Active bool
}

// ID returns [IDChannelFlow].
func (*ChannelFlow) ID() MethodID { return IDChannelFlow }

func (m *ChannelFlow) arguments(c *codec) *codec {
	return c.bits(&m.Active)
}

// ChannelFlowOk confirms a channel.flow.
type ChannelFlowOk struct {
	Active bool
}

// ID returns [IDChannelFlowOk].
func (*ChannelFlowOk) ID() MethodID { return IDChannelFlowOk }

func (m *ChannelFlowOk) arguments(c *codec) *codec {
	return c.bits(&m.Active)
}

// ChannelClose asks the peer to close the channel. ClassID and MethodID identify the method that failed, or are 0.
type ChannelClose ConnectionClose

// ID returns [IDChannelClose].
func (*ChannelClose) ID() MethodID { return IDChannelClose }

func (m *ChannelClose) arguments(c *codec) *codec { return (*ConnectionClose)(m).arguments(c) }

// ChannelCloseOk confirms a channel.close.
type ChannelCloseOk struct{ noArguments }

// ID returns [IDChannelCloseOk].
func (*ChannelCloseOk) ID() MethodID { return IDChannelCloseOk }

// AccessRequest requests an access ticket. It is obsolete, and tickets have no effect.
type AccessRequest struct {
	Realm     string
	Exclusive bool
	Passive   bool
	Active    bool
	Write     bool
	Read      bool
}

// ID returns [IDAccessRequest].
func (*AccessRequest) ID() MethodID { return IDAccessRequest }

func (m *AccessRequest) arguments(c *codec) *codec {
	return c.shortstr(&m.Realm).bits(&m.Exclusive, &m.Passive, &m.Active, &m.Write, &m.Read)
}

// AccessRequestOk grants a ticket, which has no effect.
type AccessRequestOk struct {
	Ticket uint16
}

// ID returns [IDAccessRequestOk].
func (*AccessRequestOk) ID() MethodID { return IDAccessRequestOk }

func (m *AccessRequestOk) arguments(c *codec) *codec {
	return c.short(&m.Ticket)
}
