# A task that rejects itself, in a queue with a dead-letter queue. Debian: python3-celery.
#   /usr/bin/python3 celery_reject.py URL fail      then capture the message of the queue celery.dead
#   /usr/bin/python3 celery_reject.py URL handle    prints each task that the worker receives
import sys

from celery import Celery
from celery.exceptions import Reject
from kombu import Exchange, Queue

url, what = sys.argv[1:]
app = Celery("shop", broker=url)
app.conf.task_queues = [Queue("celery", Exchange("celery"), routing_key="celery", queue_arguments={
    "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "celery.dead"})]
app.conf.worker_enable_remote_control = False  # its queues are transient, which RabbitMQ 4.3 refuses


@app.task(bind=True, name="shop.charge", acks_late=True, max_retries=2)
def charge(self, customer):
    if what == "handle":
        print("charged %d after %d retries" % (customer, self.request.retries))  # Celery logs it
        return
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    raise Reject("no such customer %d" % customer, requeue=False)


if what == "fail":
    with app.connection() as c:
        c.default_channel.queue_declare("celery.dead", durable=True, auto_delete=False)
    charge.apply_async([4711])
app.worker_main(["worker", "--pool=solo", "--without-heartbeat", "--without-gossip", "--without-mingle", "--loglevel=WARNING"])
