<?php
// The peer that uses Symfony Messenger with RabbitMQ. Debian: php-cli php-amqp php-symfony-amqp-messenger php-xml
// php-symfony-serializer php-symfony-property-access php-symfony-event-dispatcher. In an application, the framework makes these
// objects from messenger.yaml.

foreach (['Symfony/Component/Messenger', 'Symfony/Component/Messenger/Bridge/Amqp', 'Symfony/Component/EventDispatcher', 'Psr/Container'] as $part) {
    require_once "/usr/share/php/$part/autoload.php";
}

use Psr\Container\ContainerInterface;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\AmqpTransport;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\Connection;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Event\WorkerRunningEvent;
use Symfony\Component\Messenger\EventListener\AddErrorDetailsStampListener;
use Symfony\Component\Messenger\EventListener\SendFailedMessageForRetryListener;
use Symfony\Component\Messenger\EventListener\SendFailedMessageToFailureTransportListener;
use Symfony\Component\Messenger\EventListener\StopWorkerOnSigtermSignalListener;
use Symfony\Component\Messenger\MessageBus;
use Symfony\Component\Messenger\Middleware\MiddlewareInterface;
use Symfony\Component\Messenger\Middleware\StackInterface;
use Symfony\Component\Messenger\Retry\MultiplierRetryStrategy;
use Symfony\Component\Messenger\Stamp\HandledStamp;
use Symfony\Component\Messenger\Stamp\RedeliveryStamp;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
use Symfony\Component\Messenger\Worker;

class Message
{
    public $data;
}

class Services implements ContainerInterface
{
    private $services;

    public function __construct(array $services)
    {
        $this->services = $services;
    }

    public function get(string $id)
    {
        return $this->services[$id];
    }

    public function has(string $id): bool
    {
        return isset($this->services[$id]);
    }
}

// Handler is a middleware, because a handler does not receive the number of retries.
class Handler implements MiddlewareInterface
{
    private $reports;

    public function __construct()
    {
        $this->reports = stream_socket_client('unix://'.getenv('PEER_REPORTS'));
    }

    public function handle(Envelope $envelope, StackInterface $stack): Envelope
    {
        $m = $envelope->getMessage()->data;
        $attempt = 1 + RedeliveryStamp::getRetryCountFromEnvelope($envelope);
        if (!@fwrite($this->reports, sprintf("%d %d %d\n", $m['id'], $attempt, microtime(true) * 1e6))) {
            exit(1); // the benchmark ended
        }
        usleep(1000 * $m['ms']);
        if (!getenv('PEER_HEALED') && ($m['fail'] < 0 || $attempt <= $m['fail'])) {
            throw new \RuntimeException('payment provider: 503 Service Unavailable');
        }

        return $envelope->with(new HandledStamp(null, 'handler'));
    }
}

[, $verb] = $argv;
$transport = function (string $queue) {
    $options = ['exchange' => ['name' => $queue], 'queues' => [$queue => []], 'confirm_timeout' => 10];

    return new AmqpTransport(Connection::fromDsn(rtrim(getenv('PEER_URL'), '/').'/%2f/messages', $options), new PhpSerializer());
};
$work = $transport(getenv('PEER_QUEUE'));
$failed = $transport(getenv('PEER_QUEUE').'.failed');
$failed->setup();

if ('publish' === $verb) {
    while (false !== $line = fgets(STDIN)) {
        $m = new Message();
        $m->data = json_decode($line, true);
        $work->send(new Envelope($m));
    }
    exit(0);
}

$bus = new MessageBus([new Handler()]);
$strategy = new MultiplierRetryStrategy((int) getenv('PEER_RETRIES'), (int) getenv('PEER_DELAY_MS'), 1);
$events = new EventDispatcher();
$events->addSubscriber(new AddErrorDetailsStampListener());
$events->addSubscriber(new SendFailedMessageForRetryListener(new Services(['work' => $work]), new Services(['work' => $strategy])));
$events->addSubscriber(new SendFailedMessageToFailureTransportListener($failed));
$events->addSubscriber(new StopWorkerOnSigtermSignalListener());
pcntl_async_signals(true);
if ('replay' === $verb) { // `messenger:consume failed`, until the queue is empty
    $events->addListener(WorkerRunningEvent::class, function (WorkerRunningEvent $event) {
        if ($event->isWorkerIdle()) {
            $event->getWorker()->stop();
        }
    });
}
(new Worker('replay' === $verb ? ['failed' => $failed] : ['work' => $work], $bus, $events))->run();
