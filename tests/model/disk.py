"""A disk that can lose its power: a file of a FUSE file system, to be put behind a loop device.

The kernel's dm-log-writes does the same where it is built; this needs only FUSE. One process answers the
kernel. What is written goes to `now`, which reads are answered from, and is remembered; a flush (the loop
device turns one into fsync()) brings what is remembered to `safe`. A cut copies `safe`, and of what was
written since the last flush some blocks of 4 KiB: none, all, those up to a moment, or any. That is what a disk
with a volatile cache may hold after its power went: it keeps what it was told to flush, and may lose or
reorder anything else. Between two requests nothing is in motion, so a cut is one instant of the whole disk.
It is made after one of the next writes, where there is one soon: at most other moments all was flushed.
"""
import ctypes
import errno
import os
import random
import select
import socket
import struct
import subprocess
import time

BLOCK = 4096
ROOT, DISK = 1, 2
MAX_WRITE = 1 << 20
(LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR, READDIR,
 RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET) = 1, 2, 3, 4, 14, 15, 16, 17, 18, 20, 25, 26, 27, 28, 29, 36, 38, 42
LATEST = 0.06  # seconds
WAYS = ("none", "all", "prefix", "random")


class Server:
    def __init__(self, fuse, size, now, safe, control, seed):
        self.fuse, self.size, self.control = fuse, size, control
        self.now = os.open(now, os.O_RDWR | os.O_CREAT, 0o600)
        self.safe_path = safe
        self.safe = os.open(safe, os.O_RDWR | os.O_CREAT, 0o600)
        self.rng = random.Random(seed)
        self.since = []  # (offset, data) written since the last flush
        self.flushes = self.writes = 0
        self.armed = None  # (way, path, number of the write to cut after, when at the latest)

    def attr(self, node):
        mode, size = (0o40755, 0) if node == ROOT else (0o100600, self.size)
        return struct.pack("=6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, BLOCK, 0)

    def answer(self, op, node, body):
        """The reply's body, or a negative errno; None: no reply."""
        if op == INIT:
            return struct.pack("=4I2H2I2HI7I", 7, 31, 0, 1 << 5 | 1 << 22, 16, 12, MAX_WRITE, 1, MAX_WRITE // 4096, 0, 0, *[0] * 7)
        if op in (FORGET, BATCH_FORGET, INTERRUPT):
            return None
        if op == LOOKUP:
            if node != ROOT or body != b"disk\0":
                return -errno.ENOENT
            return struct.pack("=4Q2I", DISK, 0, 3600, 3600, 0, 0) + self.attr(DISK)
        if op in (GETATTR, SETATTR):
            return struct.pack("=Q2I", 3600, 0, 0) + self.attr(node)
        if op in (OPEN, OPENDIR):
            return struct.pack("=Q2I", 0, 1 if op == OPEN else 0, 0)  # past the page cache
        if op == READ:
            _, at, size = struct.unpack_from("=2QI", body)
            return os.pread(self.now, min(size, max(0, self.size - at)), at)
        if op == WRITE:
            _, at, size = struct.unpack_from("=2QI", body)
            data = bytes(body[40:40 + size])
            os.pwrite(self.now, data, at)
            self.since.append((at, data))
            self.writes += 1
            return struct.pack("=2I", size, 0)
        if op == FSYNC:
            for at, data in self.since:
                os.pwrite(self.safe, data, at)
            self.since.clear()
            self.flushes += 1
            return b""
        if op == STATFS:
            return struct.pack("=5Q4I6I", 0, 0, 0, 0, 0, BLOCK, 255, BLOCK, 0, *[0] * 6)
        if op in (RELEASE, RELEASEDIR, FLUSH, DESTROY, READDIR):
            return b""
        return -errno.ENOSYS

    def survivors(self, way):
        if way == "none":
            return
        n = self.rng.randrange(len(self.since) + 1) if way == "prefix" else len(self.since)
        for at, data in self.since[:n]:
            for i in range(0, len(data), BLOCK):
                if way != "random" or self.rng.random() < 0.5:
                    yield at + i, data[i:i + BLOCK]

    def cut(self, way, path):
        subprocess.run(["cp", "--reflink=auto", "--sparse=always", self.safe_path, path], check=True)
        fd = os.open(path, os.O_WRONLY)
        os.ftruncate(fd, self.size)
        lost = sum(len(d) for _, d in self.since)
        for at, data in self.survivors(way):
            os.pwrite(fd, data, at)
            lost -= len(data)
        os.close(fd)
        return "%d %d %d %d" % (self.writes, self.flushes, len(self.since), lost)

    def step(self):
        """One request of the kernel. False: it was unmounted."""
        try:
            request = os.read(self.fuse, MAX_WRITE + 8192)
        except OSError as e:
            return e.errno != errno.ENODEV
        length, op, unique, node = struct.unpack_from("=2I2Q", request)
        body = self.answer(op, node, memoryview(request)[40:length])
        if body is None:
            return True
        error, body = (body, b"") if isinstance(body, int) else (0, body)
        try:
            os.writev(self.fuse, [struct.pack("=IiQ", 16 + len(body), error, unique), body])
        except OSError:
            pass  # whoever asked is gone
        return True

    def serve(self):
        while True:
            ready, _, _ = select.select([self.fuse, self.control], [], [], 0.01 if self.armed else None)
            if self.control in ready:
                ask = self.control.recv(4096).decode()
                if not ask:
                    return
                way, path = ask.split("\n")
                self.armed = way, path, self.writes + self.rng.randrange(1, 12), time.monotonic() + LATEST
            if self.fuse in ready and not self.step():
                return
            if self.armed and (self.writes >= self.armed[2] or time.monotonic() > self.armed[3]):
                self.control.send(self.cut(*self.armed[:2]).encode())
                self.armed = None


class Disk:
    """Mounted at `where`, as `where`/disk."""

    def __init__(self, where, size, now, safe, seed):
        fuse = os.open("/dev/fuse", os.O_RDWR)
        os.mkdir(where)
        libc = ctypes.CDLL(None, use_errno=True)
        options = "fd=%d,rootmode=40000,user_id=0,group_id=0" % fuse
        if libc.mount(b"den-disk", where.encode(), b"fuse", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "mount a FUSE file system")
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.file = where + "/disk"
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.setsid()
                self.control.close()
                Server(fuse, size, now, safe, theirs, seed).serve()
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        os.close(fuse)

    def cut(self, way, path):
        self.control.send(("%s\n%s" % (way, path)).encode())
        return self.control.recv(4096).decode()
