"""Runs inside a box, as `python3 -c`: does what standard input asks for, and tells how the tree is then."""
import base64
import hashlib
import json
import mmap
import os
import stat
import sys


def remove(path):
    if stat.S_ISDIR(os.lstat(path).st_mode):
        for name in os.listdir(path):
            remove(path + "/" + name)
        os.rmdir(path)
    else:
        os.unlink(path)


def write(path, text, flags, mode=0o644, at=None):
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | flags, mode)
    data = base64.b64decode(text)
    while data:
        n = os.write(fd, data) if at is None else os.pwrite(fd, data, at)
        data, at = data[n:], None if at is None else at + n
    os.close(fd)


def write_mapped(path, at, text):
    data = base64.b64decode(text)
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[at:at + len(data)] = data


def write_atomic(path, text, mode):
    if os.path.lexists(path + ".new"):  # of one that was cut short
        os.unlink(path + ".new")
    write(path + ".new", text, os.O_CREAT | os.O_EXCL, mode)
    os.rename(path + ".new", path)


def chown(path, uid, gid, mode):
    os.chown(path, uid, gid, follow_symlinks=False)
    if mode is not None:  # a change of owner takes bits away
        os.chmod(path, mode)


def truncate(path, size):
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    os.ftruncate(fd, size)
    os.close(fd)


DO = {
    "write": lambda p, t, m: write(p, t, os.O_CREAT | os.O_TRUNC, m),
    "append": lambda p, t: write(p, t, os.O_APPEND),
    "pwrite": lambda p, at, t: write(p, t, 0, at=at),
    "mapped": write_mapped,
    "atomic": write_atomic,
    "truncate": truncate,
    "chmod": os.chmod,
    "chown": chown,
    "setxattr": lambda p, k, t: os.setxattr(p, k, base64.b64decode(t)),
    "rmxattr": os.removexattr,
    "symlink": os.symlink,
    "fifo": os.mkfifo,
    "mkdir": os.mkdir,
    "link": os.link,
    "rename": os.rename,
    "remove": remove,
    "touch": lambda p: os.path.lexists(p) and os.utime(p, follow_symlinks=False),
}


def attributes(path):
    return {k: base64.b64encode(os.getxattr(path, k, follow_symlinks=False)).decode()
            for k in os.listxattr(path, follow_symlinks=False) if k.startswith("user.")}


def look(path, data, out):
    st = os.lstat(path)
    kind = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFIFO: "p"}.get(stat.S_IFMT(st.st_mode), "?")
    what = None
    if kind == "f":
        with open(path, "rb") as f:
            content = f.read()
        what = base64.b64encode(content).decode() if data else hashlib.sha256(content).hexdigest()
    elif kind == "l":
        what = os.readlink(path)
    out.append([path, kind, stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, what, attributes(path),
                "%d:%d" % (st.st_dev, st.st_ino), st.st_nlink, st.st_mtime_ns])
    if kind == "d":
        for name in os.listdir(path):
            look(path + "/" + name, data, out)


def main():
    os.umask(0)
    ask = json.load(sys.stdin)
    errors, entries = [], []
    for op in ask["ops"]:
        try:
            DO[op[0]](*op[1:])
            errors.append(0)
        except OSError as e:
            errors.append(e.errno)
            break
    for root in ask["roots"]:
        if os.path.lexists(root):
            look(root, ask["data"], entries)
    json.dump({"errors": errors, "tree": entries}, sys.stdout)


main()
