package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/announce"
	"github.com/reprisemq/reprise/internal/inner"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// QueuePause returns the pause of a work queue, and whether the queue is paused. See Control.
func QueuePause(ctx context.Context, client *reprise.Client, queue string) (p protocol.Pause, paused bool, err error) {
	c := inner.Of(client)
	conn, err := c.Consuming.Get(ctx)
	if err != nil {
		return p, false, err
	}
	p, paused, err = announce.ReadPause(ctx, conn, queue)
	return p, paused, c.Refused(protocol.PauseQueuePrefix+queue, err)
}

// askTimeout limits the time of the command that requests statuses, because statuses that arrive during the command
// have to wait.
const askTimeout = 5 * time.Second

// watch calls f with each status of the announced workers in all processes, one at a time, until ctx is
// done. It requests the statuses when it starts to listen, and again after a lost connection. It returns the cause of
// ctx's cancellation, reprise.ErrClosed, or a *reprise.DeclareError if the broker refuses access.
func watch(ctx context.Context, client *reprise.Client, f func(protocol.WorkerStatus)) error {
	ask := func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		_ = Control(ctx, client, protocol.Command{Do: protocol.DoReport}) // after an error, the statuses arrive within StatusInterval
	}
	c := inner.Of(client)
	err := announce.Watch(ctx, c.Consuming, c.Reconnect, ask, f)
	if _, refused := amqpconn.RefusedChannel(err); refused {
		return c.Explain("exchange", protocol.WorkersExchange, err)
	}
	return err
}

// Control sends a command to announced workers in all processes: see reprise.Config.Announce.
//
// If Command.Worker is empty, the command applies to the queue, and the broker stores the pause. The pause lasts until
// Pause.Until or DoResume, even if no worker and no operator is running, and also applies to workers that start later.
// Control returns after the broker has stored the pause. Workers pause immediately. A worker that misses the command
// pauses within protocol.StatusInterval. A paused worker finishes the messages that it handles, and requeues the
// others.
//
// If Command.Worker is set, the command applies only to that worker, and its pause lasts no longer than the worker. For
// such a command, and for DoReport, Control returns a *reprise.UnroutableError if no client listens. It does not return an error
// if clients listen but none of them has the worker. The status of the worker reports whether it has paused.
func Control(ctx context.Context, client *reprise.Client, command protocol.Command) error {
	if command.Do != protocol.DoReport && command.Queue == "" {
		return errors.New("fleet: Command.Queue must not be empty")
	}
	ofQueue := command.Worker == "" && command.Do != protocol.DoReport
	var err error
	switch command.Do {
	case protocol.DoPause:
		if command.Pause.At.IsZero() {
			command.Pause.At = time.Now()
		}
		if ofQueue {
			err = pauseQueue(ctx, client, command.Queue, command.Pause)
		}
	case protocol.DoResume:
		if ofQueue {
			err = resumeQueue(ctx, client, command.Queue)
		}
	case protocol.DoReport:
	default:
		err = fmt.Errorf("fleet: Command.Do must be pause, resume or report: got %q", command.Do)
	}
	if err != nil {
		return err
	}
	if err = sendCommand(ctx, client, command); ofQueue {
		return nil // workers regularly check the pause of the queue anyway
	}
	return err
}

func sendCommand(ctx context.Context, client *reprise.Client, command protocol.Command) error {
	body, err := command.Encode()
	if err != nil {
		return err
	}
	c := inner.Of(client)
	if err := c.Declare(ctx, protocol.Workers()); err != nil {
		return err
	}
	msg := amqpconn.Message{ContentType: "application/json", Timestamp: time.Now(), Body: body}
	return c.Publish(ctx, protocol.ControlExchange, command.Queue, &msg)
}

func pauseQueue(ctx context.Context, client *reprise.Client, queue string, p protocol.Pause) error {
	q, ok := protocol.PauseQueue(queue)
	if !ok {
		return fmt.Errorf("fleet: Command.Queue must have at most %d bytes: got %d", math.MaxUint8-len(protocol.PauseQueuePrefix), len(queue))
	}
	msg := amqpconn.Message{ContentType: "application/json", Timestamp: time.Now()}
	if !p.Until.IsZero() {
		left := time.Until(p.Until)
		if left <= 0 || left > amqpconn.MaxExpiration {
			return fmt.Errorf("fleet: Pause.Until must be in the future, within ten years: got %s", p.Until.Format(time.RFC3339))
		}
		msg.Expiration = amqpconn.FormatExpiration(left)
	}
	body, err := p.Encode()
	if err != nil {
		return err
	}
	msg.Body = body
	c := inner.Of(client)
	if err := c.Declare(ctx, topology.Topology{Queues: []topology.Queue{q}}); err != nil {
		return err
	}
	return c.Publish(ctx, "", q.Name, &msg)
}

func resumeQueue(ctx context.Context, client *reprise.Client, queue string) error {
	c := inner.Of(client)
	conn, err := c.Publishing.Get(ctx)
	if err != nil {
		return err
	}
	return c.Refused(protocol.PauseQueuePrefix+queue, announce.Resume(ctx, conn, queue))
}
