#!/usr/bin/python3
"""Looks, inside a box, for texts (one a line of the file that is named; the last is one that is there) in
the memory and environment of every process, and in files that were written since the box began.

Prints "control: ... PLACE" and "value: ... PLACE". It cannot help having the texts in its own memory, so of
itself it looks at the environment alone."""
import os
import re
import sys

needles = [n.encode() for n in open(sys.argv[1]).read().split("\n") if n]
control = needles.pop()
pattern = re.compile(b"|".join(re.escape(n) for n in needles + [control]))
OVERLAP = max(len(n) for n in needles + [control])


def tell(found, place):
    print("%s: %d bytes in %s" % ("control" if found == control else "value", len(found), place))


def look(data, place):
    for found in {m.group() for m in pattern.finditer(data)}:
        tell(found, place)


def memory(pid, name):
    seen = 0
    try:
        maps, mem = open("/proc/%d/maps" % pid), open("/proc/%d/mem" % pid, "rb", 0)
    except OSError:
        return 0
    hits = set()
    for line in maps:
        at, rights = line.split()[:2]
        if "r" not in rights or line.rstrip().endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
            continue
        low, high = (int(x, 16) for x in at.split("-"))
        tail = b""
        while low < high:
            n = min(high - low, 4 << 20)
            try:
                mem.seek(low)
                data = mem.read(n)
            except (OSError, ValueError, OverflowError):
                break
            if not data:
                break
            seen += len(data)
            hits |= {m.group() for m in pattern.finditer(tail + data)}
            tail, low = data[-OVERLAP:], low + len(data)
    for found in hits:
        tell(found, "memory of %d %s" % (pid, name))
    return seen


def processes():
    for pid in sorted(int(p) for p in os.listdir("/proc") if p.isdigit()):
        try:
            name = open("/proc/%d/comm" % pid).read().strip()
            look(open("/proc/%d/environ" % pid, "rb").read(), "environment of %d %s" % (pid, name))
            look(open("/proc/%d/cmdline" % pid, "rb").read(), "command line of %d %s" % (pid, name))
        except OSError:
            continue
        if pid != os.getpid():
            print("searched: %d bytes of %d %s" % (memory(pid, name), pid, name))


def files(top):
    began = os.stat("/proc/1").st_ctime - 60
    device = os.stat(top).st_dev
    n = 0
    for where, dirs, names in os.walk(top):
        dirs[:] = [d for d in dirs if not os.path.islink(where + "/" + d) and
                   os.lstat(where + "/" + d).st_dev == device]
        for name in names:
            path = os.path.join(where, name)
            try:
                st = os.lstat(path)
                if st.st_mode & 0o170000 != 0o100000 or max(st.st_mtime, st.st_ctime) < began or st.st_size > 1 << 28:
                    continue
                look(open(path, "rb").read(), path)
                n += 1
            except OSError:
                continue
    print("searched: %d files of %s" % (n, top))


processes()
for top in ["/"] + sorted({line.split()[1] for line in open("/proc/mounts")
                           if re.match(r"/(run|tmp|dev/shm|home|root|var)", line.split()[1])}):
    files(top)
