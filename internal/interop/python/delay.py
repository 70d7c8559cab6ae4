# Publishes two messages with the header x-delay to an exchange, as with the plugin rabbitmq_delayed_message_exchange, and
# prints them when they arrive. The message with the shorter delay is published last.
#
#   python3 delay.py amqp://guest:guest@localhost:5672/%2F exchange queue
import sys
import time

import pika


def main(url, exchange, queue):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True)
    published = time.monotonic()
    for name, delay in (("second", 1500), ("first", 500)):
        properties = pika.BasicProperties(headers={"x-delay": delay}, delivery_mode=2, content_type="text/plain")
        channel.basic_publish(exchange, queue, name.encode(), properties, mandatory=True)
    for _ in range(2):
        method, properties, body = next(channel.consume(queue, inactivity_timeout=120))
        if method is None:
            sys.exit("no delivery")
        delay = properties.headers["x-delay"]
        early = (time.monotonic() - published) * 1000 < -delay
        print(body.decode(), delay, "early" if early else "due", properties.content_type)
        channel.basic_ack(method.delivery_tag)
    channel.cancel()
    channel.queue_delete(queue)
    connection.close()


main(*sys.argv[1:])
