# A task that rejects itself, in a queue with a dead-letter queue. Debian: python3-celery.
#   /usr/bin/python3 celery_reject.py URL      then capture the message of the queue celery.dead
import sys

from celery import Celery, Task
from celery.exceptions import Reject
from kombu import Exchange, Queue

app = Celery("shop", broker=sys.argv[1])
app.conf.task_queues = [Queue("celery", Exchange("celery"), routing_key="celery", queue_arguments={
    "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "celery.dead"})]
app.conf.worker_enable_remote_control = False  # its queues are transient, which RabbitMQ 4.3 refuses


@app.task(bind=True, name="shop.charge", acks_late=True, max_retries=2)
def charge(self, customer):
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    raise Reject("no such customer %d" % customer, requeue=False)


with app.connection() as c:
    c.default_channel.queue_declare("celery.dead", durable=True, auto_delete=False)
if len(sys.argv) == 2:
    charge.apply_async([4711])
    app.worker_main(["worker", "--pool=solo", "--without-heartbeat", "--without-gossip", "--without-mingle", "--loglevel=WARNING"])
