#!/usr/bin/python3
"""Servers for the tests of the gate, all in one process: kit.py DIR ADDRESS...

They are on every ADDRESS and on 127.0.0.1 and ::1, at fixed ports, and write what reached them into
DIR/log, one line each, before they answer:

  dns udp|tcp NAME TYPE                 a question, letters as they came
  open ADDRESS:PORT                     a connection
  data ADDRESS:PORT 'bytes'             what came in over it, as it came; of TLS, what was inside
  tls ADDRESS:PORT NAME                 a ClientHello's name
  http ADDRESS:PORT METHOD TARGET HOST  a request, as a careless server understands it
  udp ADDRESS:PORT 'bytes'              a datagram

DIR/zone has lines "NAME TYPE VALUE [VALUE...]" and is read anew for every question, so that answers can
change. Of several values "a then b then c", the first question gets a, the next b, further ones c. The
value "silent" gets no answer, "fail" SERVFAIL. "*.NAME" stands for all below.
"""
import os
import select
import socket
import ssl
import struct
import sys
import threading
import time

HTTP, HTTPS = (80, 8080), (443, 8443)
ECHO, BANNER, SINK, FLOOD = (7, 7000, 22022), (25,), (9,), (19,)
UDP = (443, 7000, 9999)

DIR = sys.argv[1]
ADDRS = ["127.0.0.1", "::1"] + sys.argv[2:]
LOG = os.open(DIR + "/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def log(*words):
    os.write(LOG, (" ".join(words) + "\n").encode())


def where(sock):
    name = sock.getsockname()
    return "%s:%d" % (name[0], name[1])


# ---- names --------------------------------------------------------------------------------------

TYPES = {1: "A", 5: "CNAME", 16: "TXT", 28: "AAAA"}
asked = {}


def zone():
    found = {}
    for line in open(DIR + "/zone"):
        w = line.split()
        if w:
            found[(w[0], w[1])] = w[2:]
    return found


def look_up(name, kind):
    """Values of the one that fits, with the changes that were asked for; None: no such name."""
    z = zone()
    names = [name] + ["*." + name.split(".", i)[i] for i in range(1, name.count(".") + 1)]
    for n in names:
        if not any(k[0] == n for k in z):
            continue
        values = z.get((n, kind), [])
        if "then" in values:
            steps = " ".join(values).split(" then ")
            at = asked.get((n, kind), 0)
            asked[(n, kind)] = at + 1
            values = steps[min(at, len(steps) - 1)].split()
        return values, z.get((n, "CNAME"), [])
    return None, []


def pack_name(name):
    return b"".join(bytes([len(l)]) + l.encode() for l in name.split(".") if l) + b"\0"


def record(name, kind, ttl, data):
    return pack_name(name) + struct.pack(">HHIH", kind, 1, ttl, len(data)) + data


def answer(msg, how):
    at, labels = 12, []
    while msg[at]:
        labels.append(msg[at + 1:at + 1 + msg[at]].decode("latin-1"))
        at += msg[at] + 1
    kind = struct.unpack(">H", msg[at + 1:at + 3])[0]
    question = msg[12:at + 5]
    said = ".".join(labels)
    word = TYPES.get(kind, str(kind))
    log("dns", how, said, word)
    values, alias = look_up(said.lower(), word)
    rcode, records, owner = 0, [], said.lower()
    if values is None:
        rcode = 3
    elif alias:
        records.append(record(owner, 5, 0, pack_name(alias[0])))
        owner = alias[0]
        values = look_up(owner, word)[0] or []
    if values == ["silent"]:
        return b""
    if values == ["fail"]:
        rcode, values = 2, []
    for v in values or []:
        if kind == 1:
            records.append(record(owner, 1, 0, socket.inet_aton(v)))
        elif kind == 28:
            records.append(record(owner, 28, 0, socket.inet_pton(socket.AF_INET6, v)))
        elif kind == 16:
            records.append(record(owner, 16, 0, bytes([len(v)]) + v.encode()))
    return msg[:2] + struct.pack(">HHHHH", 0x8180 | rcode, 1, len(records), 0, 0) + question + b"".join(records)


def dns_udp(sock):
    while True:
        msg, peer = sock.recvfrom(4096)
        reply = answer(msg, "udp")
        if reply:
            sock.sendto(reply, peer)


def dns_tcp(c):
    while True:
        head = c.recv(2, socket.MSG_WAITALL)
        if len(head) < 2:
            return
        reply = answer(c.recv(struct.unpack(">H", head)[0], socket.MSG_WAITALL), "tcp")
        c.sendall(struct.pack(">H", len(reply)) + reply)


# ---- HTTP ---------------------------------------------------------------------------------------

class Stream:
    """Reads, and writes down what it read."""

    def __init__(self, c, place):
        self.c, self.place, self.have = c, place, b""

    def more(self):
        data = self.c.recv(65536)
        if data:
            log("data", self.place, repr(data[:400])[1:])
        self.have += data
        return bool(data)

    def until(self, mark):
        while mark not in self.have:
            if not self.more():
                return None
        i = self.have.index(mark) + len(mark)
        text, self.have = self.have[:i], self.have[i:]
        return text

    def exactly(self, n):
        while len(self.have) < n:
            if not self.more():
                return None
        text, self.have = self.have[:n], self.have[n:]
        return text


def http_body(s, fields):
    if fields.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while True:
            line = s.until(b"\r\n")
            n = int(line.split(b";")[0], 16) if line else 0
            body += s.exactly(n + 2)[:n] if line else b""
            if not n:
                return body
    return s.exactly(int(fields.get("content-length", "0"))) or b""


def upgrade(s):
    s.c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    while True:
        if s.have:
            s.c.sendall(b"echo " + s.have)
            s.have = b""
        if not s.more():
            return


def http(c, place):
    s = Stream(c, place)
    while True:
        head = s.until(b"\r\n\r\n")
        if not head:
            return
        lines = head.decode("latin-1").split("\r\n")
        method, target = (lines[0].split(" ") + ["", ""])[:2]
        fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            fields[name.strip().lower()] = value.strip()
        log("http", place, method, target, fields.get("host", "-"))
        if fields.get("upgrade"):
            upgrade(s)
            return
        body = http_body(s, fields)
        if target.startswith("/bytes/"):
            text = b"x" * int(target[7:])
        else:
            text = ("served %s %s%s\n" % (fields.get("host", "-"), target, " body %d" % len(body) if body else "")).encode()
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        if fields.get("connection", "").lower() == "close":
            return


def https(c, place):
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(DIR + "/cert.pem", DIR + "/key.pem")
    ctx.sni_callback = lambda sock, name, _: log("tls", place, name or "-")
    try:
        t = ctx.wrap_socket(c, server_side=True)
    except (ssl.SSLError, OSError):
        return
    http(t, place)


# ---- anything -----------------------------------------------------------------------------------

def echo(c, place, first=b""):
    s = Stream(c, place)
    if first:
        c.sendall(first)
    while s.more():
        c.sendall(s.have)
        s.have = b""


def banner(c, place):
    echo(c, place, b"220 first word\r\n")


def sink(c, place):
    time.sleep(3600)  # never reads


def flood(c, place):
    while True:
        c.sendall(b"x" * 65536)


def udp_echo(sock):
    place = where(sock)
    while True:
        data, peer = sock.recvfrom(65536)
        log("udp", place, repr(data[:200])[1:])
        sock.sendto(b"echo " + data, peer)


def one(handler, c, place):
    log("open", place)
    try:
        handler(c, place)
    except (OSError, ValueError, TypeError, AttributeError):
        pass
    finally:
        c.close()


def new_socket(a, kind, port):
    s = socket.socket(socket.AF_INET6 if ":" in a else socket.AF_INET, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((a, port))
    return s


def main():
    listening = {}
    plan = [(HTTP, http), (HTTPS, https), (ECHO, echo), (BANNER, banner), (SINK, sink), (FLOOD, flood)]
    threads = []
    for a in ADDRS:
        for ports, handler in plan:
            for p in ports:
                s = new_socket(a, socket.SOCK_STREAM, p)
                s.listen(128)
                listening[s] = handler
        s = new_socket(a, socket.SOCK_STREAM, 53)
        s.listen(128)
        listening[s] = lambda c, place: dns_tcp(c)
        threads.append((dns_udp, new_socket(a, socket.SOCK_DGRAM, 53)))
        threads += [(udp_echo, new_socket(a, socket.SOCK_DGRAM, p)) for p in UDP]
    for f, s in threads:
        threading.Thread(target=f, args=(s,), daemon=True).start()
    poll = select.epoll()
    by_fd = {s.fileno(): s for s in listening}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    open(DIR + "/ready", "w").close()
    while True:
        for fd, _ in poll.poll():
            s = by_fd[fd]
            c, _ = s.accept()
            threading.Thread(target=one, args=(listening[s], c, where(c)), daemon=True).start()


main()
