<?php
// A handler for `process:` in the configuration of `reprise up`; `reprise up --help` describes the lines. It handles one message
// at a time: several `processes:` handle messages in parallel.

class Park extends Exception {} // the message moves to the failed queue without a retry

class Retry extends Exception // the message is retried after a delay in seconds
{
    public function __construct(string $error, public int $after)
    {
        parent::__construct($error);
    }
}

function handle(array $message): void
{
    $body = $message['body'] ?? base64_decode($message['body_base64']);
    $order = json_decode($body, true, flags: JSON_THROW_ON_ERROR);
    if (!isset($order['customer'])) {
        throw new Park('order without a customer');
    }
    if ($order['customer'] === 'closed') {
        throw new Retry('the bank is closed', 600);
    }
    fwrite(STDERR, "charged {$order['customer']}\n"); // in the log of `reprise up`; echo would disturb the answers
}

function answer(array $line): void
{
    fwrite(STDOUT, json_encode($line, JSON_INVALID_UTF8_SUBSTITUTE) . "\n");
}

ini_set('display_errors', 'stderr');
answer(['ready' => true]);
while (($line = fgets(STDIN)) !== false) {
    $message = json_decode($line, true);
    try {
        handle($message);
        answer(['id' => $message['id'], 'result' => 'done']);
    } catch (Park $e) {
        answer(['id' => $message['id'], 'result' => 'park', 'error' => $e->getMessage()]);
    } catch (Retry $e) {
        answer(['id' => $message['id'], 'result' => 'retry', 'error' => $e->getMessage(), 'retry_after' => $e->after]);
    } catch (Throwable $e) {
        answer(['id' => $message['id'], 'result' => 'retry', 'error' => (string) $e]);
    }
}
