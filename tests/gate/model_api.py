#!/usr/bin/python3
"""A model's API, small: model_api.py DIR CERT KEY

Serves the Messages API in TLS on a port of 127.0.0.1 that it writes to DIR/port. It lets in who has KEY, and
answers every message with one text, which says the key that it got: whoever looks for it finds it, if it
comes through. DIR/requests has a line for each request: METHOD PATH right|wrong|none."""
import http.server
import json
import os
import socketserver
import ssl
import sys

DIR, CERT, KEY = sys.argv[1:]
LOG = os.open(DIR + "/requests", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
USAGE = {"input_tokens": 10, "output_tokens": 5}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def event(self, value):
        data = ("event: %s\ndata: %s\n\n" % (value["type"], json.dumps(value))).encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def stream(self, message, text):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.event({"type": "message_start", "message": message})
        self.event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        for i in range(0, len(text), 7):
            self.event({"type": "content_block_delta", "index": 0,
                        "delta": {"type": "text_delta", "text": text[i:i + 7]}})
        self.event({"type": "content_block_stop", "index": 0})
        self.event({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                    "usage": USAGE})
        self.event({"type": "message_stop"})
        self.wfile.write(b"0\r\n\r\n")

    def one(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        key = self.headers.get("x-api-key") or self.headers.get("authorization", "").replace("Bearer ", "")
        path = self.path.split("?")[0]
        os.write(LOG, ("%s %s %s\n" % (self.command, path, "right" if key == KEY else "wrong" if key else "none")).encode())
        if path.endswith("/count_tokens"):
            self.answer(200, {"input_tokens": 10})
        elif path != "/v1/messages":
            self.answer(404, {"type": "error", "error": {"type": "not_found_error", "message": "no"}})
        elif key != KEY:
            self.answer(401, {"type": "error", "error": {"type": "authentication_error", "message": "wrong key " + key}})
        else:
            asked = json.loads(body)
            text = "the model speaks, and your key is known"
            message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked.get("model", "m"),
                       "content": [], "stop_reason": None, "stop_sequence": None, "usage": USAGE,
                       "metadata": {"key": key}}
            if asked.get("stream"):
                self.stream(message, text)
            else:
                message.update(content=[{"type": "text", "text": text}], stop_reason="end_turn")
                self.answer(200, message)

    do_GET = do_POST = do_HEAD = one


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


def main():
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(CERT)
    s = Server(("127.0.0.1", 0), Handler)
    s.socket = ctx.wrap_socket(s.socket, server_side=True)
    with open(DIR + "/port.new", "w") as f:
        f.write(str(s.server_port))
    os.rename(DIR + "/port.new", DIR + "/port")
    s.serve_forever()


main()
