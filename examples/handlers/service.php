<?php
// A handler for `http:` in the configuration of `reprise up`: the URL is http://127.0.0.1:8080/orders. Start it with
// `php -S 127.0.0.1:8080 service.php`, or use it with FPM.
$order = json_decode(file_get_contents('php://input'), true, flags: JSON_THROW_ON_ERROR);
if (!isset($order['customer'])) {
    http_response_code(400); // the message moves to orders.failed
} elseif ($_SERVER['HTTP_REPRISE_ATTEMPT'] < 3) {
    http_response_code(429);
    header('Retry-After: 1'); // a retry after 1 s
} else {
    http_response_code(204);
}
