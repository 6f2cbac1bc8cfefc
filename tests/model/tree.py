"""The model: a file tree in memory, what operations make of it, how two differ, how three merge.

A tree maps paths to inode numbers and those to nodes, so names of one file share a node, and a copy is
two dictionaries. Nodes never change.
"""
import base64
import collections
import functools
import hashlib
import os

# data: content of a file, target of a link. xattrs: sorted pairs. mtime: None: not known yet. low: the
# template's file, maybe changed since: overlayfs shows names of one such file as different inodes, and the
# template itself may have other names for it.
SLACK_NS = 60 * 10**9 if os.environ.get("DEN_WALL") == "gvisor" else 0  # its kernel has a clock of its own for them
Node = collections.namedtuple("Node", "type mode uid gid data xattrs mtime low", defaults=(False,))


@functools.lru_cache(maxsize=4096)
def digest(data):
    return hashlib.sha256(data).hexdigest()


def parent(path):
    return path.rpartition("/")[0]


class Tree:
    count = 0

    def __init__(self, paths=None, nodes=None):
        self.paths = paths or {}
        self.nodes = nodes or {}

    def copy(self):
        return Tree(dict(self.paths), dict(self.nodes))

    def get(self, path):
        ino = self.paths.get(path)
        return None if ino is None else self.nodes[ino]

    def add(self, path, node):
        Tree.count += 1
        self.paths[path] = Tree.count
        self.nodes[Tree.count] = node

    def put(self, path, node):
        """Another state of the same inode: all its names see it."""
        self.nodes[self.paths[path]] = node

    def drop(self, path):
        ino = self.paths.pop(path)
        if ino not in self.paths.values():
            del self.nodes[ino]

    def below(self, path):
        return [p for p in self.paths if p.startswith(path + "/")]

    def remove(self, path):
        for p in self.below(path) + ([path] if path in self.paths else []):
            self.drop(p)

    def names(self, path):
        n = len(path) + 1
        return {p[n:] for p in self.paths if p.startswith(path + "/") and "/" not in p[n:]}

    def groups(self):
        by_ino = collections.defaultdict(list)
        for p, i in self.paths.items():
            by_ino[i].append(p)
        return {tuple(sorted(g)) for g in by_ino.values() if len(g) > 1}

    # ---- operations, as agent.py does them

    def apply(self, op):
        getattr(self, "do_" + op[0])(*op[1:])

    def content(self, path, data, keep=0):
        """Whoever writes takes the set-user-id bit away."""
        n = self.get(path)
        self.put(path, n._replace(data=data, mode=n.mode & (~0o4000 | keep), mtime=None))

    def do_write(self, path, text, mode):
        data = base64.b64decode(text)
        if path in self.paths:
            self.content(path, data)
        else:
            self.add(path, Node("f", mode, 0, 0, data, (), None))

    def do_append(self, path, text):
        self.content(path, self.get(path).data + base64.b64decode(text))

    def do_pwrite(self, path, at, text):
        old, new = self.get(path).data, base64.b64decode(text)
        self.content(path, old[:at].ljust(at, b"\0") + new + old[at + len(new):])

    def do_mapped(self, path, at, text):
        old, new = self.get(path).data, base64.b64decode(text)
        self.content(path, old[:at] + new + old[at + len(new):], 0o4000)

    def do_atomic(self, path, text, mode):
        for p in (path, path + ".new"):
            if p in self.paths:
                self.drop(p)
        self.add(path, Node("f", mode, 0, 0, base64.b64decode(text), (), None))

    def do_truncate(self, path, size):
        self.content(path, self.get(path).data[:size].ljust(size, b"\0"))

    def do_chmod(self, path, mode):
        self.put(path, self.get(path)._replace(mode=mode))

    def do_chown(self, path, uid, gid, mode):
        self.put(path, self.get(path)._replace(uid=uid, gid=gid))

    def do_setxattr(self, path, name, text):
        old = dict(self.get(path).xattrs)
        old[name] = text
        self.put(path, self.get(path)._replace(xattrs=tuple(sorted(old.items()))))

    def do_rmxattr(self, path, name):
        old = dict(self.get(path).xattrs)
        del old[name]
        self.put(path, self.get(path)._replace(xattrs=tuple(sorted(old.items()))))

    def do_symlink(self, target, path):
        self.add(path, Node("l", 0o777, 0, 0, target, (), None))

    def do_fifo(self, path, mode):
        self.add(path, Node("p", mode, 0, 0, None, (), None))

    def do_mkdir(self, path, mode):
        self.add(path, Node("d", mode, 0, 0, None, (), None))

    def do_link(self, old, new):
        self.paths[new] = self.paths[old]

    def do_rename(self, old, new):
        if self.paths[old] == self.paths.get(new):
            return  # two names of one file: nothing happens, says POSIX
        self.remove(new)
        for p in [old] + self.below(old):
            self.paths[new + p[len(old):]] = self.paths.pop(p)

    def do_remove(self, path):
        self.remove(path)

    # ---- what a box told

    @staticmethod
    def told(entries):
        """Of a listing with data."""
        t, seen = Tree(), {}
        for path, kind, mode, uid, gid, what, xattrs, ino, nlink, mtime in entries:
            if kind == "f":
                what = base64.b64decode(what)
                if ino in seen:
                    t.paths[path] = t.paths[seen[ino]]
                    continue
                seen[ino] = path
            t.add(path, Node(kind, mode, uid, gid, what, tuple(sorted(xattrs.items())), mtime))
        return t

    def compare(self, entries, times=True):
        """What is not as a listing without data says, in words. Times that were not known are learnt."""
        wrong, found, inos = [], set(), collections.defaultdict(list)
        for path, kind, mode, uid, gid, what, xattrs, ino, nlink, mtime in entries:
            n = self.get(path)
            found.add(path)
            if n is None:
                wrong.append("%r (%s) should not be there" % (path, kind))
                continue
            if kind == "f":
                inos[ino].append(path)
                if not n.low and nlink != sum(1 for i in self.paths.values() if i == self.paths[path]):
                    wrong.append("%r has %d names, not %s" % (path, nlink, [
                        p for p, i in self.paths.items() if i == self.paths[path]]))
            want = digest(n.data) if n.type == "f" else n.data
            for name, is_, should in (("type", kind, n.type), ("mode", oct(mode), oct(n.mode)),
                                      ("owner", (uid, gid), (n.uid, n.gid)), ("content", what, want),
                                      ("attributes", tuple(sorted(xattrs.items())), n.xattrs)):
                if is_ != should:
                    wrong.append("%r: its %s is %s, should be %s" % (path, name, is_, should))
            if kind in "fl" and n.type == kind:
                if n.mtime is None:
                    self.put(path, n._replace(mtime=mtime))
                elif times and abs(n.mtime - mtime) > SLACK_NS:
                    wrong.append("%r: its time is %d, should be %d" % (path, mtime, n.mtime))
        wrong += ["%r (%s) is missing" % (p, self.get(p).type) for p in self.paths if p not in found]
        groups = {tuple(sorted(g)) for g in inos.values() if len(g) > 1}
        if not wrong and groups != self.groups():
            wrong.append("names of one file: %s, should be %s" % (sorted(groups), sorted(self.groups())))
        return wrong


# ---- differences -------------------------------------------------------------------------------

def what_differs(a, b):
    """As node_compare() of src/store/change.c tells."""
    what = set()
    if (a.uid, a.gid) != (b.uid, b.gid):
        what.add("owner")
    if a.type != b.type:
        return what | {"type"}
    if a.mode != b.mode:
        what.add("mode")
    if a.type in "fd" and a.xattrs != b.xattrs:
        what.add("xattr")
    if a.type == "f" and a.data != b.data:
        what.add("content")
    if a.type == "l" and a.data != b.data:
        what.add("target")
    return what


def same(a, b):
    return not difference(a, b)


def difference(a, b):
    """{path: (kind, type, changed, mode, size)}"""
    out = {}
    for p in set(a.paths) | set(b.paths):
        x, y = a.get(p), b.get(p)
        if x is y:
            continue
        what = what_differs(x, y) if x and y else set()
        if x and y and not what:
            continue
        kind = "added" if not x else "removed" if not y else \
            "modified" if what & {"content", "type", "target"} else "meta"
        n = y or x
        out[p] = (kind, n.type, tuple(sorted(what)), n.mode, len(n.data) if n.type == "f" else None)
    return out


# ---- merge, as src/store/merge.h says ----------------------------------------------------------

PARTS = ("mode", "owner", "xattr", "target")


class Unsure(Exception):
    """Lines that occur twice: how they are matched is not ours to say."""


def line_hunks(base, side):
    """[(from, to, from, to)] of lines that were replaced. All lines are different, so what both have and
    in the same order is what stayed."""
    where = {l: i for i, l in enumerate(side)}
    kept = [(i, where[l]) for i, l in enumerate(base) if l in where]
    if any(x[1] > y[1] for x, y in zip(kept, kept[1:])):
        raise Unsure
    out, a, b = [], 0, 0
    for i, j in kept + [(len(base), len(side))]:
        if i > a or j > b:
            out.append((a, i, b, j))
        a, b = i + 1, j + 1
    return out


def merge_lines(base, ours, theirs):
    """The text, or None for a conflict."""
    texts = [t.splitlines(keepends=True) if b"\r" not in t else None for t in (base, ours, theirs)]
    if any(b"\0" in t[:8000] for t in (base, ours, theirs)):
        return None
    if any(t is None or len(set(t)) != len(t) for t in texts):
        raise Unsure
    base, ours, theirs = texts
    sides = [(ours, line_hunks(base, ours)), (theirs, line_hunks(base, theirs))]
    events = sorted((h[0], h[1], s, h) for s in (0, 1) for h in sides[s][1])
    out, at, i = [], 0, 0
    while i < len(events):
        start, end = events[i][0], events[i][1]
        group = [events[i]]
        i += 1
        while i < len(events) and events[i][0] <= end:
            end = max(end, events[i][1])
            group.append(events[i])
            i += 1
        out += base[at:start]
        versions = []
        for s in (0, 1):
            mine = [e[3] for e in group if e[2] == s]
            if mine:  # its lines, with those of the base around its own changes
                versions.append(base[start:mine[0][0]] + sides[s][0][mine[0][2]:mine[-1][3]] + base[mine[-1][1]:end])
        if len(versions) == 2 and versions[0] != versions[1]:
            return None
        out += versions[0]
        at = end
    return b"".join(out + base[at:])


class Merge:
    def __init__(self, base, ours, theirs, choice, roots):
        self.trees = (base, ours, theirs)
        self.base, self.ours, self.theirs, self.choice = base, ours, theirs, choice
        self.out = ours.copy()
        self.conflicts, self.unsure = set(), set()
        self.merged, self.linked = 0, {}
        for r in roots:
            self.entry(r)

    def explain(self, text):
        """For a report: what the sides have at a path that stands in it, and above."""
        found = [p for t in self.trees for p in t.paths if repr(p) in text][:1]
        while found and parent(found[-1]):
            found.append(parent(found[-1]))
        return [(p, [n and (n.type, oct(n.mode), n.uid, n.gid, n.data and digest(n.data)[:6] if n.type == "f" else n.data)
                     for n in (t.get(p) for t in self.trees)]) for p in found if any(t.get(p) for t in self.trees)]

    def below_equal(self, path, a, b):
        names = {p[len(path):] for t in (a, b) for p in t.below(path)}
        for n in names:
            x, y = a.get(path + n), b.get(path + n)
            if (x is None) != (y is None) or (x and what_differs(x, y)):
                return False
        return True

    def equal(self, path, a, b):
        x, y = a.get(path), b.get(path)
        if x is None or y is None:
            return x is y
        return not what_differs(x, y) and (x.type != "d" or self.below_equal(path, a, b))

    def take(self, path):
        self.out.remove(path)
        n = self.theirs.get(path)
        if n is None:
            return
        for p in sorted([path] + self.theirs.below(path)):
            ino = self.theirs.paths[p]
            if ino in self.linked:
                self.out.paths[p] = self.linked[ino]
                continue
            self.out.add(p, self.theirs.nodes[ino]._replace(mtime=None, low=False))
            if self.theirs.nodes[ino].type == "f":
                self.linked[ino] = self.out.paths[p]

    def conflict(self, path):
        if self.choice == "theirs":
            self.take(path)
        elif self.choice is None:
            self.conflicts.add(path)

    def entry(self, path):
        b, o, t = (tree.get(path) for tree in self.trees)
        if o and t and o.type == "d" and t.type == "d":
            self.directory(path, b, o, t)
            names = set().union(*(tree.names(path) for tree in self.trees))
            for name in sorted(names):
                self.entry(path + "/" + name)
        elif b or o or t:
            self.other(path, b, o, t)

    def choose(self, b, o, t):
        """{part: node it comes from}; None: a conflict."""
        both = what_differs(o, t)
        ours, theirs = (what_differs(b, o), what_differs(b, t)) if b else (both, both)
        out = {}
        for part in PARTS + ("content",):
            if part not in theirs or part not in both:
                out[part] = o
            elif part in ours:
                if part != "content":
                    return None
                out[part] = None
            else:
                out[part] = t
        return out

    def directory(self, path, b, o, t):
        both = what_differs(o, t)
        if not both:
            return
        if b is None or b.type != "d":
            b = None
        elif not what_differs(b, t):
            return
        parts = self.choose(b, o, t)
        if parts is None:
            if self.choice is None:
                self.conflicts.add(path)
            elif self.choice == "theirs":
                self.out.put(path, t._replace(mtime=None))
            return
        self.out.put(path, self.combine(parts))

    @staticmethod
    def combine(parts):
        owner = parts["owner"]
        return parts["mode"]._replace(mtime=None, uid=owner.uid, gid=owner.gid, xattrs=parts["xattr"].xattrs)

    def other(self, path, b, o, t):
        if self.equal(path, self.base, self.theirs):
            return
        if self.equal(path, self.base, self.ours):
            return self.take(path)
        if not o and not t:
            return
        if not o or not t:
            return self.conflict(path)
        both = what_differs(o, t)
        if not both:
            return
        if not b or "type" in both or "type" in what_differs(b, o):
            return self.conflict(path)
        parts = self.choose(b, o, t)
        if parts is None:
            return self.conflict(path)
        if o.type == "f" and parts["content"] is None:
            try:
                data = merge_lines(b.data, o.data, t.data)
            except Unsure:
                self.unsure.add(path)
                data = o.data
            if data is None:
                return self.conflict(path)
            self.merged += 1
        elif all(n is o for n in parts.values()):
            return
        else:
            data = parts["content"].data if o.type == "f" else parts["target"].data
        node = self.combine(parts)._replace(data=data, low=False)
        if o.type != "f":
            node = node._replace(xattrs=())
        self.out.drop(path)
        self.out.add(path, node)
