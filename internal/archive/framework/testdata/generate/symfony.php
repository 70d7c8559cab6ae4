<?php
// A handler that fails; the failure transport receives the message. Debian: php-cli php-amqp php-symfony-amqp-messenger
// php-xml php-symfony-serializer php-symfony-property-access php-symfony-event-dispatcher.
//   php symfony.php URL php|json fail      then capture the message of the queue symfony-PHP|JSON-failed
//   php symfony.php URL php|json handle    prints each message that the handler receives

namespace Shop;

foreach (['Symfony/Component/Messenger', 'Symfony/Component/Messenger/Bridge/Amqp', 'Symfony/Component/Serializer', 'Symfony/Component/PropertyAccess', 'Symfony/Component/EventDispatcher'] as $part) {
    require_once "/usr/share/php/$part/autoload.php";
}

use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\AmqpTransport;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\Connection;
use Symfony\Component\Messenger\EventListener\AddErrorDetailsStampListener;
use Symfony\Component\Messenger\EventListener\SendFailedMessageToFailureTransportListener;
use Symfony\Component\Messenger\EventListener\StopWorkerOnMessageLimitListener;
use Symfony\Component\Messenger\Handler\HandlersLocator;
use Symfony\Component\Messenger\MessageBus;
use Symfony\Component\Messenger\Middleware\HandleMessageMiddleware;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
use Symfony\Component\Messenger\Transport\Serialization\Serializer;
use Symfony\Component\Messenger\Worker;
use Symfony\Component\Messenger\Envelope;

class Charge
{
    public $customer;
}

[, $url, $kind, $do] = $argv;
$serializer = 'php' === $kind ? new PhpSerializer() : Serializer::create();
$transport = function (string $queue) use ($url, $serializer) {
    return new AmqpTransport(Connection::fromDsn($url, ['exchange' => ['name' => $queue], 'queues' => [$queue => []]]), $serializer);
};
$work = $transport("symfony-$kind");
$failed = $transport("symfony-$kind-failed");
$bus = new MessageBus([new HandleMessageMiddleware(new HandlersLocator([Charge::class => [function (Charge $m) use ($do) {
    if ('fail' === $do) {
        throw new \RuntimeException("no such customer {$m->customer}");
    }
    echo "charged {$m->customer}\n";
}]]))]);
$events = new EventDispatcher();
$events->addSubscriber(new AddErrorDetailsStampListener());
$events->addSubscriber(new SendFailedMessageToFailureTransportListener($failed));
$events->addSubscriber(new StopWorkerOnMessageLimitListener(1));
if ('fail' === $do) {
    $failed->setup();
    $m = new Charge();
    $m->customer = 4711;
    $work->send(new Envelope($m));
}
(new Worker(["work" => $work], $bus, $events))->run(['sleep' => 10000]);
