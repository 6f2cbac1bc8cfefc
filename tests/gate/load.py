#!/usr/bin/python3
"""Much, slow and broken traffic for the tests of the gate.

  load.py serve DIR            servers on 127.0.0.1: raw bytes at PORT, HTTP at PORT + 1; DIR/port says PORT
  load.py WHAT HOST PORT ...   from inside a box; the last line says what was found

A raw connection says in one byte what it wants:
  1 + 8 bytes N   N bytes, then the end           5   to be reset
  2               all is read until its end, then the SHA-256 and the end
  3               bytes without end               6   64 KiB, then to be reset, whatever it sends
  4               nothing, ever
"""
import asyncio
import hashlib
import os
import resource
import socket
import struct
import sys
import time

# Not 256 bytes long, and not repeated at any power of two: what is lost or twice shows.
PIECE = bytes((i * 7 + i // 251) % 256 for i in range(65537))
RESET = struct.pack("ii", 1, 0)


def reset(writer):
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


async def put(writer, n):
    """n bytes of PIECE, over and over."""
    while n > 0:
        writer.write(PIECE[:min(n, len(PIECE))])
        n -= len(PIECE)
        await writer.drain()


def expected(n):
    h = hashlib.sha256()
    for _ in range(n // len(PIECE)):
        h.update(PIECE)
    h.update(PIECE[:n % len(PIECE)])
    return h.hexdigest()


async def digest(reader):
    h, n = hashlib.sha256(), 0
    while True:
        data = await reader.read(1 << 18)
        if not data:
            return n, h.hexdigest()
        n += len(data)
        h.update(data)


# ---- outside ------------------------------------------------------------------------------------

async def raw(reader, writer):
    try:
        what = (await reader.readexactly(1))[0]
        if what == 1:
            await put(writer, struct.unpack(">Q", await reader.readexactly(8))[0])
        elif what == 2:
            writer.write((await digest(reader))[1].encode())
            await writer.drain()
        elif what == 3:
            await put(writer, 1 << 50)
        elif what == 4:
            await asyncio.sleep(3600)
        elif what == 5:
            reset(writer)
        elif what == 6:
            await put(writer, 65536)
            await asyncio.sleep(0.05)
            reset(writer)
    except (OSError, EOFError):
        pass
    finally:
        writer.close()


async def http(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            method, target = head.split(b" ")[:2]
            length = [l for l in head.split(b"\r\n") if l.lower().startswith(b"content-length:")]
            if method == b"POST":
                h, left = hashlib.sha256(), int(length[0].split(b":")[1])
                while left:
                    data = await reader.read(min(left, 1 << 18))
                    if not data:
                        return
                    h.update(data)
                    left -= len(data)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + h.hexdigest().encode())
            else:
                n = int(target[1:] or b"0")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n)
                await put(writer, n)
            await writer.drain()
    except (OSError, EOFError, ValueError):
        pass
    finally:
        writer.close()


async def serve(where):
    for port in range(20000 + os.getpid() % 10000, 40000, 2):
        try:
            servers = [await asyncio.start_server(raw, "127.0.0.1", port, backlog=4096),
                       await asyncio.start_server(http, "127.0.0.1", port + 1, backlog=4096)]
            break
        except OSError:
            pass
    with open(where + "/port.new", "w") as f:
        f.write("%d\n" % port)
    os.rename(where + "/port.new", where + "/port")
    await asyncio.gather(*[s.serve_forever() for s in servers])


# ---- inside -------------------------------------------------------------------------------------

HOST, PORT = (sys.argv + ["", "", "0"])[2], 0


async def dial():
    return await asyncio.open_connection(HOST, PORT)


async def get(n):
    reader, writer = await dial()
    writer.write(b"\1" + struct.pack(">Q", n))
    got = await digest(reader)
    writer.close()
    return got == (n, expected(n))


async def send(n):
    """Says all, ends its side, and hears then."""
    reader, writer = await dial()
    writer.write(b"\2")
    await put(writer, n)
    writer.write_eof()
    said = (await reader.read()).decode()
    writer.close()
    return said == expected(n)


async def count(jobs):
    found = await asyncio.gather(*jobs, return_exceptions=True)
    for e in {repr(f) for f in found if f is not True}:
        print(e, file=sys.stderr)
    return sum(f is True for f in found)


async def down(n, streams="1"):
    print(await count([get(int(n)) for _ in range(int(streams))]))


async def up(n, streams="1"):
    print(await count([send(int(n)) for _ in range(int(streams))]))


async def both(n, streams):
    print(await count([f(int(n)) for _ in range(int(streams)) for f in (get, send)]))


async def web(n, streams):
    """HTTP, many requests on each connection, both ways; PORT is the one of HTTP."""
    async def one():
        reader, writer = await dial()
        size = int(n)
        for _ in range(3):
            writer.write(b"GET /%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (size, HOST.encode(), PORT))
            head = await reader.readuntil(b"\r\n\r\n")
            h, left = hashlib.sha256(), size
            while left:
                data = await reader.read(min(left, 1 << 18))
                if not data:
                    return "the answer ended"
                h.update(data)
                left -= len(data)
            if b" 200 " not in head or h.hexdigest() != expected(size):
                return "the answer is not what was sent"
            writer.write(b"POST / HTTP/1.1\r\nHost: %s:%d\r\nContent-Length: %d\r\n\r\n" % (HOST.encode(), PORT, size))
            await put(writer, size)
            await reader.readuntil(b"\r\n\r\n")
            if (await reader.readexactly(64)).decode() != expected(size):
                return "what arrived is not what was sent"
        writer.close()
        return True
    print(await count([one() for _ in range(int(streams))]))


async def hold(n, what, seconds="3600"):
    """Opens n, says in each what it wants, reads nothing; prints how many there are, and waits."""
    socks, wrong = [], set()
    for _ in range(int(n)):
        s = socket.socket()
        s.settimeout(5)
        socks.append(s)
        try:
            s.connect((HOST, PORT))
            if what == "web":
                s.send(b"GET /100000000 HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), PORT))
            elif what == "half":
                s.send(b"\x16\x03\x01")  # a ClientHello that is never said
            elif what != "none":
                s.send(bytes([int(what)]))
        except OSError as e:
            socks.remove(s)
            wrong.add(str(e))
    for e in wrong:
        print(e, file=sys.stderr)
    print(len(socks), flush=True)
    time.sleep(float(seconds))


async def answers(what):
    """What a connection with this wish ends with: how many bytes, and how."""
    n, s = 0, socket.create_connection((HOST, PORT), 5)
    s.send(bytes([int(what)]))
    try:
        while True:
            if what == "6":
                s.send(b"x" * 1000)
            data = s.recv(65536)
            if not data:
                print(n, "end")
                return
            n += len(data)
    except BrokenPipeError:
        pass
    except OSError as e:
        print(n, "reset" if isinstance(e, ConnectionResetError) else e)
        return
    try:
        while True:
            data = s.recv(65536)
            n += len(data)
            if not data:
                print(n, "end")
                return
    except OSError as e:
        print(n, "reset" if isinstance(e, ConnectionResetError) else e)


async def churn(seconds):
    """Connections that end in every way, until the time is over."""
    until, n = time.monotonic() + float(seconds), 0

    async def one(i):
        reader, writer = await dial()
        writer.write([b"\5", b"\6", b"\3", b"\4", b"\2abc", b"\1" + struct.pack(">Q", 50000)][i % 6])
        if i % 5:
            await asyncio.sleep(0.001 * (i % 7))
        if i % 3 == 0:
            reset(writer)
        elif i % 3 == 1:
            writer.write_eof()
            try:
                await asyncio.wait_for(reader.read(4096), 0.05)
            except asyncio.TimeoutError:
                pass
        writer.close()

    while time.monotonic() < until:
        await asyncio.gather(*[one(i) for i in range(n, n + 60)], return_exceptions=True)
        n += 60
    print(n)


def main():
    global PORT
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if sys.argv[1] == "serve":
        asyncio.run(serve(sys.argv[2]))
        return
    PORT = int(sys.argv[3])
    asyncio.run(globals()[sys.argv[1]](*sys.argv[4:]))


main()
