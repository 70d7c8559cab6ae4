package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// openConfirming returns a session with channels in confirm mode.
func openConfirming(tb testing.TB, disk store.Store, channels ...uint16) testSession {
	s := open(tb, disk)
	for _, id := range channels {
		s.receive(id, &amqpwire.ChannelOpen{}, &amqpwire.ConfirmSelect{})
	}
	s.sent()
	return s
}

// published records a published message and the commit that makes it durable.
func (s testSession) published(id uint16, accepted bool, kept store.Ticket) {
	s.confirms.add(s.channels[id], accepted, kept)
}

// answers returns a summary of the methods sent to the client.
func (s testSession) answers() string {
	s.tb.Helper()
	var words []string
	for _, m := range s.sent() {
		switch m := m.(type) {
		case *amqpwire.BasicAck:
			word := "ack "
			if m.Multiple {
				word = "ack.."
			}
			words = append(words, fmt.Sprint(word, m.DeliveryTag))
		case *amqpwire.BasicNack:
			words = append(words, fmt.Sprintf("nack %d", m.DeliveryTag))
		default:
			words = append(words, m.ID().String())
		}
	}
	return strings.Join(words, ", ")
}

func (s testSession) wantSent(what, when string) {
	s.tb.Helper()
	if answers := s.answers(); answers != what {
		s.tb.Errorf("%s: got %q, want %q", when, answers, what)
	}
}

func TestConfirmsWaitForCommit(t *testing.T) {
	disk := newFakeStore()
	s := openConfirming(t, disk, 1, 2)
	s.published(1, true, 0)
	s.confirms.flush()
	s.wantSent("ack 1", "transient message")

	s.published(1, true, disk.nextTicket())
	s.published(1, true, disk.nextTicket())
	s.published(1, true, 0)  // waits for the commit of the previous messages
	s.published(1, false, 0) // waits for the commit of the previous messages
	s.published(1, true, disk.nextTicket())
	s.published(2, true, 0)
	s.published(2, true, disk.nextTicket())
	s.confirms.flush()
	s.wantSent("ack 1", "before the commit") // the ack is on channel 2
	disk.commit()
	s.wantSent("ack..4, nack 5, ack 6, ack 2", "after the commit")
}

// The session confirms each tag exactly once, in order and with the correct result, after the commit of its message and no
// later than the next flush.
func TestConfirmsInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type message struct {
			accepted bool
			kept     store.Ticket
		}
		disk := newFakeStore()
		s := openConfirming(t, disk, 1)
		var published []message
		confirms := 0
		read := func(flushed bool) {
			settle := func(upTo uint64, accepted bool) {
				for ; confirms < int(upTo); confirms++ {
					if m := published[confirms]; m.accepted != accepted || m.kept > disk.nextTicket()-1 {
						rt.Fatalf("message %d (accepted %v, commit %d) confirmed with accepted %v after commit %d",
							confirms+1, m.accepted, m.kept, accepted, disk.nextTicket()-1)
					}
				}
			}
			for _, m := range s.sent() {
				switch m := m.(type) {
				case *amqpwire.BasicAck:
					if !m.Multiple && m.DeliveryTag != uint64(confirms)+1 {
						rt.Fatalf("ack %d follows confirm %d", m.DeliveryTag, confirms)
					}
					settle(m.DeliveryTag, true)
				case *amqpwire.BasicNack:
					if m.Multiple || m.DeliveryTag != uint64(confirms)+1 {
						rt.Fatalf("nack %d (multiple %v) follows confirm %d", m.DeliveryTag, m.Multiple, confirms)
					}
					settle(m.DeliveryTag, false)
				}
			}
			if flushed && confirms < len(published) && published[confirms].kept < disk.nextTicket() {
				rt.Fatalf("message %d (commit %d) not confirmed after commit %d",
					confirms+1, published[confirms].kept, disk.nextTicket()-1)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"publish": func(rt *rapid.T) {
				m := message{accepted: rapid.IntRange(0, 4).Draw(rt, "accepted") > 0}
				if m.accepted && rapid.Bool().Draw(rt, "durable") {
					m.kept = disk.nextTicket()
				}
				published = append(published, m)
				s.published(1, m.accepted, m.kept)
				read(false)
			},
			"flush":  func(*rapid.T) { s.confirms.flush(); read(true) },
			"commit": func(*rapid.T) { disk.commit(); read(false) },
		})
	})
}

func TestConfirmsNotifyOncePerCommit(t *testing.T) {
	disk := newFakeStore()
	s := openConfirming(t, disk, 1, 2)
	for range 3 {
		for range 10 {
			s.published(1, true, disk.nextTicket())
			s.published(2, true, disk.nextTicket())
		}
		if n := len(disk.waiters); n != 1 {
			t.Errorf("waiters for a commit: got %d, want 1", n)
		}
		disk.commit()
	}
	s.wantSent("ack..10, ack..10, ack..20, ack..20, ack..30, ack..30", "after three commits")
}

func TestConfirmsFlushAfterConfirmEvery(t *testing.T) {
	s := openConfirming(t, nil, 1)
	for range confirmEvery {
		s.published(1, true, 0)
	}
	s.wantSent(fmt.Sprintf("ack..%d", confirmEvery), "without a flush")
}

func TestCloseWaitsForTheDisk(t *testing.T) {
	for name, how := range map[string]struct {
		channel  uint16
		method   amqpwire.Method
		confirms string
	}{
		"channel":    {1, &amqpwire.ChannelClose{}, "ack 1, channel.close-ok"},
		"connection": {0, &amqpwire.ConnectionClose{}, "ack 1, connection.close-ok"},
	} {
		for _, end := range []string{"commit", "failure"} {
			t.Run(name+" "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					disk := newFakeStore()
					s := openConfirming(t, disk, 1)
					s.published(1, true, disk.nextTicket())
					done := make(chan struct{})
					go func() {
						defer close(done)
						s.receive(how.channel, how.method)
					}()
					synctest.Wait()
					s.wantSent("", "before the commit")
					want := how.confirms
					if end == "commit" {
						disk.commit()
					} else {
						disk.fail()
						want = strings.TrimPrefix(want, "ack 1, ")
					}
					<-done
					s.wantSent(want, "after the "+end)
				})
			})
		}
	}
}

func TestExceptionSendsDueConfirms(t *testing.T) {
	disk := newFakeStore()
	s := openConfirming(t, disk, 1)
	s.published(1, true, 0)
	s.published(1, true, disk.nextTicket())
	s.receive(1, &amqpwire.QueuePurge{Queue: "missing"})
	s.wantSent("ack 1, channel.close", "after the error")
	disk.commit()
	s.wantSent("", "closed channel")
}

func TestSessionSendsNoConfirmsAfterStoreFailure(t *testing.T) {
	disk := newFakeStore()
	s := openConfirming(t, disk, 1)
	s.published(1, true, disk.nextTicket())
	disk.fail()
	s.published(1, true, disk.nextTicket())
	s.published(1, true, 0)
	s.confirms.flush()
	s.wantSent("", "after the failure of the store")
	s.receive(1, &amqpwire.ChannelClose{})
	s.wantSent("channel.close-ok", "to the request to close the channel")
}

func TestTransactionWaitsForCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFakeStore()
		s := open(t, disk)
		s.receive(1, &amqpwire.ChannelOpen{}, &amqpwire.TxSelect{})
		for _, want := range []string{"tx.commit-ok", "connection.close"} {
			s.sent()
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.receive(1, &amqpwire.TxCommit{})
			}()
			synctest.Wait()
			s.wantSent("", "before the commit")
			if want == "tx.commit-ok" {
				disk.commit()
			} else {
				disk.fail()
			}
			<-done
			s.wantSent(want, "after the result of the commit")
		}
		if disk.held != 0 {
			t.Errorf("calls of Hold without Release: got %d, want 0", disk.held)
		}
		if disk.unheld != 0 {
			t.Errorf("changes of a transaction outside Hold and Release, so that they are not atomic: got %d, want 0", disk.unheld)
		}
	})
}
