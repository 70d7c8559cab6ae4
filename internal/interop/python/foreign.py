# Implements the four published designs with pika. The program declares the queues, publishes, consumes, and retries as
# the design specifies. It prints the result of each attempt as JSON. If a body contains fails=n, the first n attempts
# fail, in any program.
#
#   python3 foreign.py DESIGN amqp://guest:guest@localhost:5672 [DELAY-IN-MS]
#
# DESIGN is coverart, staking, workretry or cdnpurge. The default delay is the delay of the design. The program reads
# lines of the form "publish NUMBER" from stdin, and stops consuming at the end of stdin.
import json
import math
import random
import re
import secrets
import sys
import threading
from copy import copy

import pika


class CoverArt:
    delay = 4 * 60 * 60 * 1000
    queues = ["cover-art-archive.index", "cover-art-archive.delete", "cover-art-archive.move"]
    addresses = [("cover-art-archive", "index"), ("cover-art-archive", "delete"), ("cover-art-archive", "move")]

    def declare(self, channel):
        channel.exchange_declare("cover-art-archive", "direct", durable=True)
        for event in "index", "delete", "move":
            channel.queue_declare("cover-art-archive." + event, durable=True)
            channel.queue_bind("cover-art-archive." + event, "cover-art-archive", event)
        channel.exchange_declare("cover-art-archive.retry", "fanout", durable=True)
        channel.queue_declare("cover-art-archive.retry", durable=True, arguments={
            "x-message-ttl": self.delay, "x-dead-letter-exchange": "cover-art-archive"})
        channel.queue_bind("cover-art-archive.retry", "cover-art-archive.retry")
        channel.exchange_declare("cover-art-archive.failed", "fanout", durable=True)
        channel.queue_declare("cover-art-archive.failed", durable=True)
        channel.queue_bind("cover-art-archive.failed", "cover-art-archive.failed")

    def attempt(self, method, properties):
        return 5 - int(properties.headers.get("mb-retries", 4))

    # mb-retries is a string, as in the original program of the design.
    def failed(self, channel, method, properties, body, error):
        retries = int(properties.headers.get("mb-retries", 4))
        again = copy(properties)
        again.headers = dict(properties.headers)
        again.headers["mb-exceptions"] = properties.headers.get("mb-exceptions", []) + [error]
        if retries > 0:
            again.headers["mb-retries"] = str(retries - 1)
        channel.basic_publish("cover-art-archive." + ("retry" if retries > 0 else "failed"), method.routing_key, body, again)
        channel.basic_ack(method.delivery_tag)
        return "retried" if retries > 0 else "parked"


class Staking:
    delay = 5000
    queues = ["active_staking_queue", "unbonding_staking_queue"]
    addresses = [("", queue) for queue in queues]

    def declare(self, channel):
        channel.exchange_declare("common_dlx", "direct", durable=True)
        for queue in self.queues:
            channel.queue_declare(queue + "_delay", durable=True, arguments={
                "x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue})
            channel.queue_declare(queue, durable=True, arguments={
                "x-queue-type": "quorum", "x-dead-letter-exchange": "common_dlx",
                "x-dead-letter-routing-key": queue + "_routing_key"})
            channel.queue_bind(queue + "_delay", "common_dlx", queue + "_routing_key")

    def attempt(self, method, properties):
        return 1 + properties.headers.get("x-processing-attempts", 0)

    def failed(self, channel, method, properties, body, error):
        clone = copy(properties)
        clone.headers = dict(properties.headers)
        clone.headers["x-processing-attempts"] = self.attempt(method, properties)
        clone.expiration = str(self.delay)
        channel.basic_publish("", method.routing_key + "_delay", body, clone)
        channel.basic_ack(method.delivery_tag)
        return "retried"


class WorkRetry:
    delay = 300000
    queues = ["WorkQueue"]
    addresses = [("WorkExchange", "")]

    def declare(self, channel):
        channel.exchange_declare("WorkExchange", "direct", durable=True)
        channel.exchange_declare("RetryExchange", "direct", durable=True)
        channel.queue_declare("WorkQueue", durable=True, arguments={"x-dead-letter-exchange": "RetryExchange"})
        channel.queue_declare("RetryQueue", durable=True, arguments={
            "x-dead-letter-exchange": "WorkExchange", "x-message-ttl": self.delay})
        channel.queue_bind("WorkQueue", "WorkExchange", "")
        channel.queue_bind("RetryQueue", "RetryExchange", "")

    def attempt(self, method, properties):
        deaths = properties.headers.get("x-death", [])
        return 1 + sum(d["count"] for d in deaths if d["queue"] == "WorkQueue" and d["reason"] == "rejected")

    def failed(self, channel, method, properties, body, error):
        channel.basic_reject(method.delivery_tag, requeue=False)
        return "retried"


class CDNPurge:
    delay = 10000
    queues = ["cdn-purge"]
    keys = ["url", "directory", "tag"]
    addresses = [("cdn-purge", key) for key in keys]

    def declare(self, channel):
        channel.exchange_declare("cdn-purge", "direct", durable=True)
        channel.exchange_declare("cdn-purge.wait", "direct", durable=True)
        channel.queue_declare("cdn-purge", durable=True)
        channel.queue_declare("cdn-purge.wait", durable=True, arguments={"x-dead-letter-exchange": "cdn-purge"})
        for key in self.keys:
            channel.queue_bind("cdn-purge", "cdn-purge", key)
            channel.queue_bind("cdn-purge.wait", "cdn-purge.wait", key)

    # The design has no attempt header. Each delay is three times the previous delay, so the delay determines the attempt.
    def attempt(self, method, properties):
        waited = self.waited(properties)
        return 2 + round(math.log(waited / self.delay, 3)) if waited else 1

    def waited(self, properties):
        deaths = properties.headers.get("x-death", [])
        return int(deaths[0]["original-expiration"]) if deaths else 0

    def failed(self, channel, method, properties, body, error):
        again = copy(properties)
        last = self.waited(properties)
        again.expiration = str(int(3 * last * random.uniform(1, 1.1)) if last else self.delay)
        channel.basic_publish("cdn-purge.wait", method.routing_key, body, again)
        channel.basic_ack(method.delivery_tag)
        return "retried"


# Properties and headers of every message. No program may change them.
HEADERS = {"shop": "blau", "priority-customer": True, "items": [1, 2]}
PROPERTIES = {"content_type": "text/plain", "correlation_id": "order 7", "type": "order", "app_id": "foreign"}


class Program:
    def __init__(self, design, url):
        self.design = design
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.channel.basic_qos(prefetch_count=3)

    def run(self):
        self.design.declare(self.channel)
        for queue in self.design.queues:
            self.channel.basic_consume(queue, self.handle)
        say(event="ready")
        threading.Thread(target=self.listen, daemon=True).start()
        self.channel.start_consuming()
        self.connection.close()

    def listen(self):
        for line in sys.stdin:
            number = int(line.split()[1])
            self.connection.add_callback_threadsafe(lambda n=number: self.publish(n))
        self.connection.add_callback_threadsafe(self.channel.stop_consuming)

    def publish(self, number):
        for i in range(number):
            exchange, key = self.design.addresses[i % len(self.design.addresses)]
            message = secrets.token_hex(4)
            say(event="published", id=message, fails=i % 4)
            self.channel.basic_publish(exchange, key, f"{message} fails={i % 4}".encode(), pika.BasicProperties(
                message_id=message, delivery_mode=2, headers=dict(HEADERS), **PROPERTIES), mandatory=True)

    def handle(self, channel, method, properties, body):
        properties.headers = properties.headers or {}
        check(properties, body)
        attempt = self.design.attempt(method, properties)
        fails = int(re.search(rb"fails=(-?\d+)", body).group(1))
        if fails < 0 or attempt <= fails:
            result = self.design.failed(channel, method, properties, body, f"attempt {attempt} fails")
        else:
            channel.basic_ack(method.delivery_tag)
            result = "done"
        say(event=result, id=properties.message_id, attempt=attempt)


def check(properties, body):
    for name, want in HEADERS.items():
        if properties.headers.get(name) != want:
            say(event="changed", id=properties.message_id, what=f"header {name} is {properties.headers.get(name)!r}")
    for name, want in PROPERTIES.items():
        if getattr(properties, name) != want:
            say(event="changed", id=properties.message_id, what=f"{name} is {getattr(properties, name)!r}")
    if not body.startswith(properties.message_id.encode()):
        say(event="changed", id=properties.message_id, what=f"body is {body!r}")


def say(**what):
    print(json.dumps(what), flush=True)


def main(name, url, delay=None):
    design = {"coverart": CoverArt, "staking": Staking, "workretry": WorkRetry, "cdnpurge": CDNPurge}[name]()
    if delay:
        design.delay = int(delay)
    Program(design, url).run()


main(*sys.argv[1:])
