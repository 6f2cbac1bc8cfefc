#!/usr/bin/python3
"""What a program in a box tries: poke.py WHAT ARGUMENT...; says in a word or a line how it went.

  tcp HOST PORT [TEXT]        connects; "open", the reply, or the name of the error
  udp HOST PORT TEXT          the reply, the name of the error, or "silent"
  hello HOST PORT [WORD...]   a ClientHello: sni=NAME ech pad=BYTES split=BYTES records=BYTES half
                              "server TYPE" (a record that came back), "alert N", "end"
  http HOST PORT TEXT...      sends TEXT (\\r \\n \\t \\0 \\xNN are meant), each one after a moment, and
                              prints all that comes back
  dns NAME TYPE [tcp]         asks the gate; "RCODE ADDRESS..."
  sockets HOST                every kind of socket that could leave without TCP and UDP
  lines                       these from standard input, one a line, and "LINE: how it went" of each
"""
import errno
import os
import socket
import struct
import sys
import time

GATE = "198.18.0.1"


def word(e):
    if isinstance(e, socket.gaierror):
        return "EAI %d" % e.errno
    if isinstance(e, (socket.timeout, TimeoutError)) and not e.errno:
        return "timeout"
    return errno.errorcode.get(e.errno, str(e))


def connect(host, port):
    return socket.create_connection((host, int(port)), timeout=5)


def read_all(s):
    """Until it ends, or nothing has come for a moment; (what came, how it ended)."""
    data = b""
    s.settimeout(2)
    while True:
        try:
            more = s.recv(65536)
        except (socket.timeout, TimeoutError):
            return data, ""
        except OSError as e:
            return data, word(e)
        if not more:
            return data, "end"
        data += more
        s.settimeout(0.3)


def tcp(host, port, text=None):
    s = connect(host, port)
    if text is None:
        return "open"
    s.sendall(text.encode())
    s.settimeout(3)
    data = s.recv(65536)
    return data.decode("latin-1") if data else "end"


def udp(host, port, text):
    family, _, _, _, to = socket.getaddrinfo(host, int(port), 0, socket.SOCK_DGRAM)[0]
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(1)
    s.connect(to)
    s.send(text.encode())
    try:
        return s.recv(65536).decode("latin-1")
    except (socket.timeout, TimeoutError):
        return "silent"


def extension(kind, data):
    return struct.pack(">HH", kind, len(data)) + data


def client_hello(words):
    exts = b""
    for w in words:
        if w.startswith("sni="):
            n = w[4:].encode()
            exts += extension(0, struct.pack(">HBH", len(n) + 3, 0, len(n)) + n)
        elif w == "ech":
            exts += extension(0xfe0d, b"\0\0\x01\0\x01\x42\0\x20" + b"k" * 32 + b"\0\x20" + b"p" * 32)
        elif w.startswith("pad="):
            exts += extension(21, b"\0" * int(w[4:]))
    exts += extension(10, b"\0\2\0\x17") + extension(13, b"\0\2\4\3") + extension(43, b"\2\3\3") + extension(11, b"\1\0")
    body = b"\3\3" + os.urandom(32) + b"\0" + b"\0\4\xc0\x2b\xc0\x2f" + b"\1\0" + struct.pack(">H", len(exts)) + exts
    message = b"\1" + struct.pack(">I", len(body))[1:] + body
    size = ([int(w[8:]) for w in words if w.startswith("records=")] or [16384])[0]
    return b"".join(b"\x16\3\1" + struct.pack(">H", len(message[i:i + size])) + message[i:i + size]
                    for i in range(0, len(message), size))


def hello(host, port, *words):
    data = client_hello(words)
    step = ([int(w[6:]) for w in words if w.startswith("split=")] or [len(data)])[0]
    s = connect(host, port)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if "half" in words:
        s.sendall(data[:len(data) // 2])
        s.shutdown(socket.SHUT_WR)
        data = b""
    for i in range(0, len(data), step):
        s.sendall(data[i:i + step])
        if step < len(data):
            time.sleep(0.002)
    s.settimeout(3)
    back = s.recv(7)
    if not back:
        return "end"
    return "alert %d" % back[6] if back[0] == 21 and len(back) == 7 else "server %d" % back[0]


def http(host, port, *texts):
    s = connect(host, port)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for i, t in enumerate(texts):
        if i:
            time.sleep(0.1)
        try:
            s.sendall(t.encode().decode("unicode_escape").encode("latin-1"))
        except OSError:
            break
    data, how = read_all(s)
    return data.decode("latin-1") + how


def dns(name, kind, how="udp", at=GATE):
    kinds = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "NULL": 10, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33,
             "HTTPS": 65, "ANY": 255, "AXFR": 252}
    q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0)
    q += b"".join(bytes([len(l)]) + l.encode("latin-1") for l in name.split(".")) + b"\0"
    q += struct.pack(">HH", kinds[kind], 1)
    if how == "tcp":
        s = connect(at, 53)
        s.sendall(struct.pack(">H", len(q)) + q)
        n = struct.unpack(">H", s.recv(2, socket.MSG_WAITALL))[0]
        a = s.recv(n, socket.MSG_WAITALL)
    else:
        s = socket.socket(socket.AF_INET6 if ":" in at else socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(3)
        s.connect((at, 53))
        s.send(q)
        a = s.recv(4096)
    rcode, count, found, p = a[3] & 15, struct.unpack(">H", a[6:8])[0], [], len(q)
    for _ in range(count):
        while a[p] and a[p] < 0xc0:
            p += a[p] + 1
        p += 2 if a[p] >= 0xc0 else 1
        t, _, _, n = struct.unpack(">HHIH", a[p:p + 10])
        p += 10
        found.append(socket.inet_ntop(socket.AF_INET if t == 1 else socket.AF_INET6, a[p:p + n]) if t in (1, 28) else "?")
        p += n
    names = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}
    return " ".join([names.get(rcode, str(rcode))] + found)


def sockets(to):
    """Each kind: what happens when a packet is sent with it."""
    tries = [
        ("raw", socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW), ("icmp", socket.AF_INET, socket.SOCK_RAW, 1),
        ("ping", socket.AF_INET, socket.SOCK_DGRAM, 1), ("udp-raw", socket.AF_INET, socket.SOCK_RAW, 17),
        ("sctp", socket.AF_INET, socket.SOCK_STREAM, 132), ("sctp-seq", socket.AF_INET, socket.SOCK_SEQPACKET, 132),
        ("dccp", socket.AF_INET, 6, 33), ("udplite", socket.AF_INET, socket.SOCK_DGRAM, 136),
        ("mptcp", socket.AF_INET, socket.SOCK_STREAM, 262), ("gre", socket.AF_INET, socket.SOCK_RAW, 47),
        ("packet", 17, socket.SOCK_RAW, 0x0300), ("packet-dgram", 17, socket.SOCK_DGRAM, 0x0300),
        ("vsock", 40, socket.SOCK_STREAM, 0), ("tipc", 30, socket.SOCK_RDM, 0), ("rds", 21, socket.SOCK_SEQPACKET, 0),
        ("bluetooth", 31, socket.SOCK_RAW, 1), ("can", 29, socket.SOCK_RAW, 1), ("xdp", 44, socket.SOCK_RAW, 0),
        ("smc", 43, socket.SOCK_STREAM, 0), ("alg", 38, socket.SOCK_SEQPACKET, 0), ("kcm", 41, socket.SOCK_DGRAM, 0),
        ("ax25", 3, socket.SOCK_DGRAM, 0), ("l2tp", socket.AF_INET, socket.SOCK_DGRAM, 115),
    ]
    lines = []
    for name, family, kind, proto in tries:
        try:
            s = socket.socket(family, kind, proto)
        except (OSError, ValueError) as e:
            lines.append("%s: no socket (%s)" % (name, word(e) if isinstance(e, OSError) else e))
            continue
        s.settimeout(0.3)
        try:
            if family == socket.AF_INET and kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, 6):
                s.connect((to, 7))
            elif family == socket.AF_INET and name == "udplite":
                s.connect((to, 7000))
                s.send(b"out")
                s.recv(100)
            elif family == socket.AF_INET:
                s.connect((to, 0 if kind == socket.SOCK_RAW else 1))
                echo = struct.pack(">BBHHH", 8, 0, 0xf7fd, 1, 1)
                ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28, 1, 0, 64, 1, 0, socket.inet_aton("127.0.0.1"),
                                 socket.inet_aton(to))
                s.send(ip + echo if name == "raw" else echo)
                s.recv(100)
            elif family == 17:
                s.bind(("lo", 0x0300))
                s.send(b"\0" * 64)
            lines.append("%s: went" % name)
        except (OSError, ValueError) as e:
            lines.append("%s: %s" % (name, word(e) if isinstance(e, OSError) else e))
    return "\n".join(lines)


KINDS = {"tcp": tcp, "udp": udp, "hello": hello, "http": http, "dns": dns, "sockets": sockets}


def one(words):
    try:
        return KINDS[words[0]](*words[1:])
    except OSError as e:
        return word(e)


def main():
    if sys.argv[1] == "lines":
        for line in sys.stdin:
            print("%s: %s" % (line.strip(), one(line.split())))
    else:
        print(one(sys.argv[1:]))


main()
