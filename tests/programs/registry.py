#!/usr/bin/python3
"""What the tests of den-fetch stand before: layouts, a proxy that damages, a registry that lies.

  registry.py layout DIR [--layers SIZE,...] [--arch ARCH,...] [--tag TAG] [--seed N]
      an OCI image layout made by hand; with more than one ARCH, an index
  registry.py proxy PORT MODE LOG
      before a real registry on PORT. MODE: pass, flip, cut:N (each first answer with a blob ends after N
      bytes), stall:N (after N bytes nothing comes any more)
  registry.py liar LOG [CERT KEY]
      a registry whose repository's name says what is wrong with it, and on a second port the place that
      it redirects to

Servers listen on 127.0.0.1 (or LISTEN), say their ports on stdout, and log each request as a line of JSON.
"""
import argparse
import base64
import gzip
import hashlib
import http.client
import http.server
import io
import json
import os
import random
import socket
import socketserver
import ssl
import sys
import tarfile
import threading
import time
import urllib.parse

LISTEN = os.environ.get("LISTEN", "127.0.0.1")
OCI = "application/vnd.oci.image."
MANIFEST, INDEX = OCI + "manifest.v1+json", OCI + "index.v1+json"
CONFIG, LAYER = OCI + "config.v1+json", OCI + "layer.v1.tar+gzip"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def described(data, media, **more):
    return {"mediaType": media, "digest": digest(data), "size": len(data), **more}


def packed(value):
    return json.dumps(value, separators=(",", ":")).encode()


def make_layer(size, seed):
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0, compresslevel=1) as z:
        with tarfile.open(fileobj=z, mode="w") as t:
            info = tarfile.TarInfo("data-%d" % seed)
            info.size = size
            t.addfile(info, io.BytesIO(random.Random(seed).randbytes(size)))
    return out.getvalue()


def make_image(sizes, arch, seed):
    """(manifest, {digest: blob})"""
    layers = [make_layer(n, seed * 1000 + i) for i, n in enumerate(sizes)]
    config = packed({"architecture": arch, "os": "linux", "config": {"Env": ["A=1"], "Cmd": ["/bin/sh"]},
                     "rootfs": {"type": "layers", "diff_ids": [digest(gzip.decompress(x)) for x in layers]},
                     "history": [{"created_by": "test"} for _ in layers]})
    manifest = packed({"schemaVersion": 2, "mediaType": MANIFEST, "config": described(config, CONFIG),
                       "layers": [described(x, LAYER) for x in layers]})
    return manifest, {digest(b): b for b in layers + [config]}


def layout(args):
    blobs, entries = {}, []
    for i, arch in enumerate(args.arch.split(",")):
        manifest, parts = make_image([int(n) for n in args.layers.split(",")], arch, args.seed + i)
        blobs.update(parts)
        blobs[digest(manifest)] = manifest
        entries.append(described(manifest, MANIFEST, platform={"os": "linux", "architecture": arch}))
    if len(entries) > 1:
        index = packed({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})
        blobs[digest(index)] = index
        entries = [described(index, INDEX)]
    entries[0]["annotations"] = {"org.opencontainers.image.ref.name": args.tag}
    os.makedirs(args.dir + "/blobs/sha256")
    for d, b in blobs.items():
        open(args.dir + "/blobs/sha256/" + d[7:], "wb").write(b)
    open(args.dir + "/oci-layout", "w").write('{"imageLayoutVersion":"1.0.0"}')
    open(args.dir + "/index.json", "wb").write(packed({"schemaVersion": 2, "manifests": entries}))


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client):
        pass  # whoever hangs up is part of the test


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    lock = threading.Lock()

    def log_message(self, *_):
        pass

    def note(self, **more):
        line = {"method": self.command, "path": self.path, "auth": self.headers.get("Authorization"),
                "range": self.headers.get("Range"), "server": self.server.name, **more}
        with self.lock, open(self.server.log, "a") as f:
            f.write(json.dumps(line) + "\n")

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for k, v in headers.items():
            for one in v if isinstance(v, list) else [v]:
                self.send_header(k.replace("_", "-"), one)
        if not any(k.lower() in ("content_length", "transfer_encoding") for k in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def hang_up(self):
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def do_GET(self):
        self.handle_it()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_GET


def start(handler, log, name, tls=None, **attrs):
    s = Server((LISTEN, 0), handler)
    s.log, s.name = log, name
    for k, v in attrs.items():
        setattr(s, k, v)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        s.socket = context.wrap_socket(s.socket, server_side=True)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return s


# ---- before a real registry ---------------------------------------------------------------------

class Proxy(Handler):
    cut_once = set()

    def handle_it(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.note(bytes=len(body))
        up = http.client.HTTPConnection("127.0.0.1", self.server.to)
        # the registry makes its Locations from Host: uploads come back through us
        up.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for k, v in self.headers.items():  # some come more than once
            up.putheader(k, v)
        up.endheaders(body)
        r = up.getresponse()
        data = r.read()
        is_layer = self.command == "GET" and "/blobs/" in self.path and len(data) > 2000
        mode, _, n = self.server.mode.partition(":")
        self.send_response(r.status)
        for k, v in r.getheaders():
            if k.lower() not in ("connection", "date", "transfer-encoding"):
                self.send_header(k, v)
        self.end_headers()
        if self.command == "HEAD":
            return
        if mode == "flip" and is_layer:
            data = data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]
        if mode == "cut" and is_layer and self.path not in self.cut_once:
            self.cut_once.add(self.path)
            self.wfile.write(data[:int(n)])
            self.hang_up()
            return
        if mode == "stall" and is_layer:
            self.wfile.write(data[:int(n)])
            self.wfile.flush()
            time.sleep(300)
        self.wfile.write(data)


# ---- one that lies ------------------------------------------------------------------------------

class Store(Handler):
    """Where blobs are said to be kept: another origin."""

    def handle_it(self):
        self.note()
        blob = self.server.blobs.get("sha256:" + self.path.rpartition("/")[2])
        self.answer(200 if blob else 404, blob or b"")


class Liar(Handler):
    counts, now, most = {}, 0, 0

    def times(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1
            return self.counts[what]

    def handle_it(self):
        length = int(self.headers.get("Content-Length", 0))
        self.sent = self.rfile.read(length) if length else b""
        url = urllib.parse.urlsplit(self.path)
        self.query = urllib.parse.parse_qs(url.query)
        self.note(body=self.sent.decode("latin-1")[:300])
        if url.path == "/token":
            return self.token()
        words = url.path.split("/")  # "", "v2", repository, what, name
        if words[1] != "v2" or len(words) < 5:
            return self.answer(200 if words[1] == "v2" else 404)
        self.repo, what, name = words[2], words[3], words[4]
        if self.repo in ("token", "refresh", "redirect", "again", "elsewhere") and self.refused():
            return None
        if self.command in ("POST", "PUT", "PATCH") or words[4] == "uploads":
            return self.upload(words)
        if what == "manifests":
            return self.manifest(name)
        return self.blob(name)

    def home(self):
        return "%s://%s" % ("https" if self.server.tls else "http", self.headers["Host"])

    def token(self):
        form = urllib.parse.parse_qs(self.sent.decode())
        user = self.headers.get("Authorization", "")
        ok = user == "Basic " + base64.b64encode(b"den:secret").decode() or \
            form.get("refresh_token") == ["long-lived"]
        asked = {**self.query, **form}
        if not ok or asked.get("service") != ["the \"service\""] or not asked.get("scope"):
            return self.answer(401)
        self.answer(200, packed({"token": "good-%s" % asked["scope"][0]}))

    def refused(self):
        scope = "repository:%s:pull" % self.repo
        wanted = "Bearer good-" + scope
        if self.repo == "again":  # each token is good for three requests
            wanted = wanted if self.times("again") % 4 else None
        if self.headers.get("Authorization") == wanted:
            return False
        self.answer(401, WWW_Authenticate=[
            "Basic realm=\"x\"",
            'Negotiate, Bearer realm="%s/token", service="the \\"service\\"",scope="%s"' % (self.home(), scope)])
        return True

    def upload(self, words):
        if words[-1] == "" and self.command == "POST":
            where = {"elsewhere": "http://%s/up/" % self.server.store,
                     "file": "file:///etc/passwd", "user": "http://a:b@%s/" % self.headers["Host"],
                     "junk": "http://\x7f /%zz"}.get(self.repo, self.path + "1")
            return self.answer(202, Location=where)
        self.answer(404 if self.command == "HEAD" else 201)

    def document(self):
        s = self.server
        m = json.loads(s.manifest)
        layer = m["layers"][0]
        if self.repo == "updir":
            layer["digest"] = "sha256:" + "../" * 22 + "tmp/den-fetch-was-here"
        elif self.repo == "absolute":
            layer["digest"] = "/etc/passwd"
        elif self.repo == "upper":
            layer["digest"] = layer["digest"].upper().replace("SHA256", "sha256")
        elif self.repo == "longer":
            layer["digest"] += "/../x"
        elif self.repo in ("less", "lesschunked"):
            layer["size"] -= 10
        elif self.repo in ("more", "morechunked"):
            layer["size"] += 10
        elif self.repo == "negative":
            layer["size"] = -1
        elif self.repo == "endless":
            layer["size"] = 1 << 20
        elif self.repo == "odd":
            layer["mediaType"] = "application/vnd.example.odd"
        elif self.repo == "chart":
            m["config"]["mediaType"] = "application/vnd.example.chart"
        elif self.repo == "both":
            m["manifests"] = []
        elif self.repo == "deep":
            m["annotations"] = json.loads("[" * 40 + "]" * 40)
        elif self.repo == "values":
            m["annotations"] = [0] * 200000
        elif self.repo == "many":
            m["layers"] = s.many
        elif self.repo == "old":
            m = {"schemaVersion": 1, "name": "old", "tag": "latest", "fsLayers": []}
        return packed(m)

    def manifest(self, name):
        body, media = self.document(), MANIFEST
        if self.repo == "huge":
            body = body[:-1] + b',"annotations":{"x":"' + b"x" * (5 << 20) + b'"}}'
        elif self.repo == "brackets":
            body = b"[" * 1000000
        elif self.repo == "text":
            body, media = b"<html>hello \x1b[31m</html>", "text/html"
        elif self.repo == "type":
            media = "application/vnd.example.thing.v1+json"
        elif self.repo == "endlessjson":
            self.answer(200, Transfer_Encoding="chunked", Content_Type=MANIFEST)
            return self.chunks(b" " * 65536)
        elif self.repo == "headers":
            self.send_response(200)
            for i in range(100000):
                self.send_header("X-%d" % i, "y" * 100)
            return self.end_headers()
        elif self.repo == "loop":
            return self.answer(302, Location=self.path)
        elif self.repo == "file":
            return self.answer(302, Location="file:///etc/passwd")
        elif self.repo == "busy" and self.times("busy") < 3:
            return self.answer(503, Retry_After="1")
        elif self.repo == "toomany" and self.times("toomany") < 2:
            return self.answer(429, Retry_After="2")
        elif self.repo == "broken":
            return self.answer(500, packed({"errors": [{"code": "X", "message": "disk \x1b[2J full"}]}))
        elif self.repo == "silent":
            time.sleep(300)
        elif self.repo == "absent":
            return self.answer(404, packed({"errors": [{"code": "MANIFEST_UNKNOWN",
                                                         "message": "manifest unknown"}]}))
        told = digest(b"other") if self.repo == "told" else digest(body)
        if name.startswith("sha256:") and self.repo == "exchanged":
            body = body.replace(b"history", b"histroy") + b" "
            told = name
        self.answer(200, body, Content_Type=media, Docker_Content_Digest=told)

    def chunks(self, piece, limit=None):
        sent = 0
        while limit is None or sent < limit:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            sent += len(piece)
        self.wfile.write(b"0\r\n\r\n")

    def blob(self, name):
        s = self.server
        data = s.blobs.get(name)
        if data is None:
            return self.answer(404)
        layer = len(data) > 2000
        if self.repo == "endless" and layer:
            self.answer(200, Transfer_Encoding="chunked")
            return self.chunks(b"x" * 65536)
        if self.repo.endswith("chunked") and layer:
            self.answer(200, Transfer_Encoding="chunked")
            return self.chunks(data, len(data))
        if self.repo in ("redirect", "metadata") and layer:
            where = self.repo == "metadata" and "127.0.0.1:1" or s.store
            return self.answer(307, Location="http://%s/kept/%s" % (where, name[7:]))
        if self.repo == "ignores" and layer and self.times("ignores") == 1:
            self.answer(200, Content_Length=str(len(data)))
            self.wfile.write(data[:30000])
            return self.hang_up()  # and the next answer is whole, whatever Range says
        if self.repo == "wrongpart" and layer and self.headers.get("Range"):
            return self.answer(206, data[7:], Content_Range="bytes 7-%d/%d" % (len(data) - 1, len(data)))
        if self.repo == "wrongpart" and layer:
            self.answer(200, Content_Length=str(len(data)))
            self.wfile.write(data[:30000])
            return self.hang_up()
        if self.repo == "many":
            with self.lock:
                Liar.now += 1
                Liar.most = max(Liar.most, Liar.now)
            self.note(most=Liar.most)
            time.sleep(0.3)
            with self.lock:
                Liar.now -= 1
        if self.repo == "slow" and layer:
            self.answer(200, Content_Length=str(len(data)))
            for i in range(0, len(data), len(data) // 8):
                self.wfile.write(data[i:i + len(data) // 8])
                time.sleep(0.3)
            return None
        self.answer(200, data)


def liar(args):
    manifest, blobs = make_image([100000], args.arch, 7)
    extra = [make_layer(3000, 100 + i) for i in range(9)]
    blobs.update({digest(b): b for b in extra})
    store = start(Store, args.log, "store", blobs=blobs)
    tls = (args.cert, args.key) if args.cert else None
    home = start(Liar, args.log, "home", tls, blobs=blobs, manifest=manifest,
                 many=[described(b, LAYER) for b in extra], store="%s:%d" % store.server_address)
    home.tls = tls
    return home, store


def main():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(dest="what", required=True)
    a = sub.add_parser("layout")
    a.add_argument("dir")
    a.add_argument("--layers", default="200000,3000")
    a.add_argument("--arch", default="amd64")
    a.add_argument("--tag", default="latest")
    a.add_argument("--seed", type=int, default=1)
    a = sub.add_parser("proxy")
    a.add_argument("to", type=int)
    a.add_argument("mode")
    a.add_argument("log")
    a = sub.add_parser("liar")
    a.add_argument("log")
    a.add_argument("cert", nargs="?")
    a.add_argument("key", nargs="?")
    a.add_argument("--arch", default="amd64")
    args = p.parse_args()
    if args.what == "layout":
        return layout(args)
    if args.what == "proxy":
        servers = [start(Proxy, args.log, "proxy", to=args.to, mode=args.mode)]
    else:
        servers = liar(args)
    print(*[s.server_address[1] for s in servers], flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
