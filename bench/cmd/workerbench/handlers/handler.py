# A handler that does nothing, for each kind of handler: exec, process, or a service on a port (http) or a socket (unix PATH).
import http.server
import json
import socketserver
import sys


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass

    def address_string(self):
        return "localhost"


class OnPort(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


class OnSocket(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


def process():
    sys.stdout.write('{"ready":true}\n')
    sys.stdout.flush()
    for line in sys.stdin:
        message = json.loads(line)
        sys.stdout.write('{"id":%d,"result":"done"}\n' % message["id"])
        sys.stdout.flush()


kind = sys.argv[1]
if kind == "exec":
    sys.stdin.read()
elif kind == "process":
    process()
elif kind == "http":
    Service.disable_nagle_algorithm = True
    server = OnPort(("127.0.0.1", 0), Service)
    print("http://127.0.0.1:%d/" % server.server_address[1], flush=True)
    server.serve_forever()
else:
    server = OnSocket(sys.argv[2], Service)
    print("unix://" + sys.argv[2], flush=True)
    server.serve_forever()
