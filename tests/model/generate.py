"""What is done inside a box: random operations that the tree allows."""
import base64

ENTRIES_MAX = 220
NAMES = list("abcdefgh") + ["sp ace", "new\nline", "\u00fc\u6f22", "bad\udcff", "-dash", "esc\x1b[31m", "x" * 240]


class Generator:
    """Makes operations that the tree allows."""

    def __init__(self, rng, roots, removable, owners, attributes, pipes, links):
        self.rng, self.roots, self.removable = rng, roots, removable
        self.owners, self.attributes, self.pipes, self.links = owners, attributes, pipes, links

    def text(self, data):
        return base64.b64encode(data).decode()

    def lines(self, n):
        return b"".join(b"%012x\n" % self.rng.getrandbits(48) for _ in range(n))

    def data(self):
        r = self.rng.random()
        if r < 0.7:
            return self.lines(self.rng.randrange(1, 30))
        if r < 0.8:
            return b""
        return self.rng.getrandbits(8 * 64).to_bytes(64, "big") * self.rng.choice([1, 40, 300]) + b"\0"

    def some(self, tree, types, pick=lambda p: True):
        found = [p for p in sorted(tree.paths) if tree.get(p).type in types and pick(p)]
        return self.rng.choice(found) if found else None

    def free(self, tree, beside=None):
        """A name that is not there. beside: on the same file system as that, /usr being one of its own."""
        top = self.some(tree, "d", lambda p: p.count("/") < 7 and (
            not beside or p.startswith("/usr/") == beside.startswith("/usr/")))
        for _ in range(8):
            name = self.rng.choice(NAMES[:8]) if self.rng.random() < 0.85 else self.rng.choice(NAMES)
            if top and top + "/" + name not in tree.paths:
                return top + "/" + name
        return None

    def mode(self, directory=False):
        if directory:
            return self.rng.choice([0o755, 0o755, 0o700, 0o1777, 0o500])
        return self.rng.choice([0o644, 0o644, 0o600, 0o755, 0o640, 0o4755, 0o400, 0])

    def movable(self, tree):
        return self.some(tree, "fdlp", lambda p: p not in self.roots)

    # Each gives a list of operations, or None where there is nothing to do it to.

    def do_new(self, t):
        p = self.free(t)
        return p and [["write", p, self.text(self.data()), self.mode() & 0o777]]

    def do_overwrite(self, t):
        p = self.some(t, "f")
        return p and [[self.rng.choice(["write", "atomic"]), p, self.text(self.data()), self.mode() & 0o777]]

    def do_edit(self, t):
        """Lines of a text, so that there is something to merge."""
        p = self.some(t, "f", lambda p: t.get(p).data.count(b"\n") > 2 and b"\0" not in t.get(p).data)
        if not p:
            return None
        lines = t.get(p).data.splitlines(keepends=True)
        for _ in range(self.rng.choice([1, 1, 2])):
            i = self.rng.randrange(len(lines))
            r = self.rng.random()
            if r < 0.7:
                lines[i] = self.lines(1)
            elif r < 0.85:
                lines.insert(i, self.lines(1))
            elif len(lines) > 2:
                del lines[i]
        data = self.text(b"".join(lines))
        return [["write", p, data, 0] if self.rng.random() < 0.7 else ["atomic", p, data, t.get(p).mode & 0o777]]

    def do_append(self, t):
        p = self.some(t, "f")
        return p and [["append", p, self.text(self.lines(self.rng.randrange(1, 4)))]]

    def do_truncate(self, t):
        p = self.some(t, "f")
        size = p and len(t.get(p).data)
        return p and [["truncate", p, self.rng.choice([0, size // 2, size, size + 5000])]]

    def do_pwrite(self, t):
        p = self.some(t, "f")
        return p and [["pwrite", p, self.rng.randrange(0, len(t.get(p).data) + 100), self.text(self.lines(1))]]

    def do_mapped(self, t):
        p = self.some(t, "f", lambda p: len(t.get(p).data) > 20)
        return p and [["mapped", p, self.rng.randrange(len(t.get(p).data) - 13), self.text(self.lines(1))]]

    def do_chmod(self, t):
        p = self.some(t, "fdp", lambda p: p not in self.roots)
        return p and [["chmod", p, self.mode(t.get(p).type == "d")]]

    def do_chown(self, t):
        p = self.some(t, "fdlp", lambda p: p not in self.roots)
        if not self.owners or not p:
            return None
        mode = None if t.get(p).type == "l" else t.get(p).mode
        return [["chown", p, self.rng.choice([0, 33, 1000, 65000]), self.rng.choice([0, 33, 100]), mode]]

    def do_xattr(self, t):
        p = self.some(t, "fd")
        if not self.attributes or not p:
            return None
        if t.get(p).xattrs and self.rng.random() < 0.4:
            return [["rmxattr", p, self.rng.choice(t.get(p).xattrs)[0]]]
        return [["setxattr", p, self.rng.choice(["user.a", "user.b", "user.\u00fc"]), self.text(self.lines(1))]]

    def do_symlink(self, t):
        p = self.free(t)
        return p and [["symlink", self.rng.choice(["a", "../b", "/nowhere", "new\nline", "t" * 300]), p]]

    def do_fifo(self, t):
        p = self.free(t)
        return [["fifo", p, self.mode()]] if p and self.pipes else None

    def do_mkdir(self, t):
        p = self.free(t)
        return p and [["mkdir", p, self.mode(True)]]

    def do_link(self, t):
        old = self.some(t, "f", lambda p: not t.get(p).low)
        new = old and self.free(t, old)
        return [["link", old, new]] if old and new and self.links else None

    def do_rename(self, t):
        old = self.movable(t)
        if not old:
            return None
        new = self.free(t, old)
        if t.get(old).type == "f" and self.rng.random() < 0.3:
            new = self.some(t, "flp", lambda p: p != old and p.startswith("/usr/") == old.startswith("/usr/"))
        if not new or new.startswith(old + "/"):
            return None
        return [["rename", old, new]]

    def do_remove(self, t):
        p = self.movable(t)
        return p and [["remove", p]]

    def do_remove_template(self, t):
        p = self.some(t, "fdl", lambda p: any(p == r or p.startswith(r + "/") for r in self.removable))
        return p and [["remove", p]]

    def do_replace_directory(self, t):
        """Gone and made again: nothing of what is below shines through."""
        p = self.some(t, "d", lambda p: p not in self.roots or p in self.removable)
        if not p:
            return None
        return [["remove", p], ["mkdir", p, self.mode(True)]] + \
            [["write", "%s/%s" % (p, n), self.text(self.data()), self.mode() & 0o777] for n in self.rng.sample("abc", self.rng.randrange(3))]

    def do_directory_to_file(self, t):
        p = self.some(t, "d", lambda p: p not in self.roots)
        return p and [["remove", p], ["write", p, self.text(self.data()), self.mode() & 0o777]]

    def do_file_to_directory(self, t):
        p = self.some(t, "flp")
        return p and [["remove", p], ["mkdir", p, self.mode(True)], ["write", p + "/a", self.text(self.data()), 0o644]]

    def do_root_again(self, t):
        gone = [r for r in self.removable if r not in t.paths]
        if not gone:
            return None
        p = self.rng.choice(gone)
        return [["mkdir", p, 0o755], ["write", p + "/a", self.text(self.data()), 0o644]]

    KINDS = (["new"] * 6 + ["overwrite"] * 3 + ["edit"] * 7 + ["append"] * 2 + ["truncate", "pwrite", "mapped"] +
             ["chmod"] * 2 + ["chown"] * 2 + ["xattr"] * 2 + ["symlink"] * 2 + ["fifo"] + ["mkdir"] * 3 +
             ["link"] * 2 + ["rename"] * 4 + ["remove"] * 3 + ["remove_template", "replace_directory",
             "directory_to_file", "file_to_directory", "root_again"])

    def make(self, tree, n):
        ops, t = [], tree.copy()
        while len(ops) < n:
            kind = "remove" if len(t.paths) > ENTRIES_MAX else self.rng.choice(self.KINDS)
            for op in getattr(self, "do_" + kind)(t) or []:
                ops.append(op)
                t.apply(op)
        return ops
