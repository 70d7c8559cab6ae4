# A handler for `process:` in the configuration of `reprise up`; `reprise up --help` describes the lines. It handles one message at
# a time: several `processes:` handle messages in parallel.
import base64
import json
import sys
import traceback


class Park(Exception):
    """The message is invalid: it moves to the failed queue without a retry."""


class Retry(Exception):
    """The message is retried after a delay in seconds."""

    def __init__(self, error, after):
        super().__init__(error)
        self.after = after


def handle(message):
    body = message["body"] if "body" in message else base64.b64decode(message["body_base64"])
    order = json.loads(body)
    if "customer" not in order:
        raise Park("order without a customer")
    if order["customer"] == "closed":
        raise Retry("the bank is closed", 600)
    print("charged", order["customer"])  # in the log of `reprise up`


answers, sys.stdout = sys.stdout, sys.stderr  # print() must not disturb the answers


def answer(**line):
    print(json.dumps(line), file=answers, flush=True)


answer(ready=True)
for line in sys.stdin:
    message = json.loads(line)
    try:
        handle(message)
        answer(id=message["id"], result="done")
    except Park as e:
        answer(id=message["id"], result="park", error=str(e))
    except Retry as e:
        answer(id=message["id"], result="retry", error=str(e), retry_after=e.after)
    except Exception:
        answer(id=message["id"], result="retry", error=traceback.format_exc())
