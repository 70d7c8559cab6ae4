# A handler for `http:` in the configuration of `reprise up`: the URL is http://127.0.0.1:8080/orders.
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Orders(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open

    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "customer" not in order:
            self.answer(400)  # the message moves to orders.failed
        elif int(self.headers["Reprise-Attempt"]) < 3:
            self.answer(429, ("Retry-After", "1"))  # a retry after 1 s
        else:
            self.answer(204)

    def answer(self, status, *headers):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Orders).serve_forever()
