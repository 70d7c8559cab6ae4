# The peer that uses Celery with RabbitMQ. Debian: python3-celery.
import json
import os
import socket
import sys
import time

from celery import Celery
from celery.exceptions import Reject
from kombu import Exchange, Queue

QUEUE, DELAY = os.environ["PEER_QUEUE"], int(os.environ["PEER_DELAY_MS"]) / 1000
DEAD = QUEUE + ".dead"

app = Celery("peer", broker=os.environ["PEER_URL"])
app.conf.update(
    broker_transport_options={"confirm_publish": True},
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_default_queue=QUEUE,
    task_queues=[Queue(QUEUE, Exchange(QUEUE), routing_key=QUEUE, queue_arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD})],
    worker_enable_remote_control=False,  # its queues are transient, which RabbitMQ 4.3 refuses
    worker_hijack_root_logger=False,
)
reports = None


# The processes of the pool connect when they handle their first task.
def report(line):
    global reports
    if reports is None:
        reports = socket.socket(socket.AF_UNIX)
        reports.connect(os.environ["PEER_REPORTS"])
    try:
        reports.sendall(line.encode())
    except OSError:
        os._exit(1)  # the benchmark ended


@app.task(bind=True, max_retries=int(os.environ["PEER_RETRIES"]))
def handle(self, message):
    attempt = 1 + self.request.retries
    report("%d %d %d\n" % (message["id"], attempt, time.time() * 1e6))
    time.sleep(message["ms"] / 1000)
    if not os.environ.get("PEER_HEALED") and (message["fail"] < 0 or attempt <= message["fail"]):
        if attempt > self.max_retries:
            raise Reject("payment provider: 503 Service Unavailable", requeue=False)
        raise self.retry(countdown=DELAY)


def publish():
    with app.connection_for_write() as connection:
        connection.default_channel.queue_declare(DEAD, durable=True, auto_delete=False)
    with app.producer_pool.acquire(block=True) as producer:
        for line in sys.stdin:
            handle.apply_async([json.loads(line)], producer=producer)


def work():
    app.worker_main(["worker", "--concurrency", os.environ["PEER_CONCURRENCY"], "--without-gossip", "--without-mingle", "--loglevel=ERROR"])


{"publish": publish, "work": work}[sys.argv[1]]()
