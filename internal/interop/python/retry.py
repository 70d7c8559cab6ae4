# Rejects a message twice. The rejected message waits in a queue with a message TTL, the broker dead-letters it to the
# work queue, and x-death counts the rejections. Prints the attempts.
#
#   python3 retry.py amqp://guest:guest@localhost:5672/%2F queue
import sys

import pika


def main(url, work):
    wait = work + ".wait"
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(work, durable=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait})
    channel.queue_declare(wait, durable=True, arguments={
        "x-message-ttl": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work})
    channel.basic_qos(prefetch_count=1)
    channel.basic_publish("", work, b"body", pika.BasicProperties(message_id="id-1"), mandatory=True)

    for method, properties, body in channel.consume(work, inactivity_timeout=20):
        if method is None:
            sys.exit("no delivery")
        deaths = (properties.headers or {}).get("x-death", [])
        attempt = 1 + sum(d["count"] for d in deaths if d["reason"] == "rejected" and d["queue"] == work)
        print("attempt", attempt)
        if properties.message_id != "id-1" or body != b"body":
            sys.exit("received another message")
        if attempt == 3:
            channel.basic_ack(method.delivery_tag)
            break
        channel.basic_reject(method.delivery_tag, requeue=False)
    channel.cancel()
    print("done")

    # The broker returns an unroutable message before it confirms it.
    try:
        channel.basic_publish("", work + ".nowhere", b"", mandatory=True)
        sys.exit("an unroutable message was accepted")
    except pika.exceptions.UnroutableError as error:
        print("returned", error.messages[0].method.reply_code)
    channel.queue_delete(work)
    channel.queue_delete(wait)
    connection.close()


main(*sys.argv[1:])
