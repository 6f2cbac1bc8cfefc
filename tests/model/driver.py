"""Drives den and the model side by side, and compares them."""
import collections
import errno
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import threading
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import tree as model
from generate import Generator
from merging import Merging
from parts import Box, NoSpace, Point, Wrong
from tree import Tree

HERE = os.path.dirname(os.path.realpath(__file__))


def load(name, path):
    spec = spec_from_loader(name, SourceFileLoader(name, path))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fault = load("fault", HERE + "/../fault/run")
AGENT = open(HERE + "/agent.py").read()
BOXES_MAX = 5
FULL_WORDS = re.compile(r"full|space|quota|no room|limit", re.I)
ALWAYS = ("log", "start", "stop", "rm", "ls", "inspect", "gc")  # on a full disk as well
disks = set()  # processes of disk.py, which stay


# named pipes and hard links: behind gVisor the first are not on disk, and what is done to one name of a file is seen
# late at another (docs/walls.md)
FILES = (False, False) if os.environ.get("DEN_WALL") == "gvisor" else (True, True)

class Driver(Merging):
    def __init__(self, den, state, seed, kill=False, verbose=False):
        self.den, self.state, self.kill, self.verbose = den, state, kill, verbose
        self.rng = random.Random(seed)
        self.boxes = []
        self.ids = set()
        self.deleted, self.ghosts = [], []
        self.made = 0
        self.alike = {}    # (id, 0) of a fork -> the point that it was forked from
        self.counts = collections.Counter()
        self.trace = collections.deque(maxlen=40)
        self.hit, self.loose = False, None  # was something killed in this step; a tag that may be anywhere
        self.full = False  # the disk is: operations may fail, and say so
        self.spaceless = False  # it was
        self.cutter = None  # called in the middle of an operation, with its arguments
        self.lazy = int(os.environ.get("DEN_TEST_SLOW", "1")) > 1  # turns may share a checkpoint
        self.base = None
        self.roots = ["/root", "/srv", "/opt"]

    # ---- calling den

    def call(self, *args, data=b"", disturb=None, limit=40):
        with fault.lock:
            p = subprocess.Popen([self.den] + list(args), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
            fault.callers.add(p.pid)
        hit, timer = [], None
        if self.cutter and self.rng.random() < 0.15:
            timer = threading.Timer(self.rng.expovariate(1 / 0.01), self.cutter, (args,))
            timer.start()
        if disturb:
            def strike():
                try:
                    os.kill(disturb[1] or p.pid, signal.SIGKILL)
                    hit.append(disturb[0])
                except OSError:
                    pass
            timer = threading.Timer(self.rng.expovariate(1 / 0.012), strike)
            timer.start()
        try:
            out, err = p.communicate(data, timeout=limit)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            raise Wrong("%s hangs (disturbed: %s)" % (" ".join(args), disturb))
        finally:
            if timer:
                timer.cancel()
                timer.join()  # nothing in the model changes during a cut
            with fault.lock:
                fault.callers.discard(p.pid)
        if disturb:
            self.hit = bool(hit)  # until the end of this step
        for h in hit:
            self.counts["killed " + h] += 1
        self.said = err.decode("utf-8", "replace").strip()[:600]
        shown = " ".join(a if len(a) < 80 else a[:20] + "..." for a in args)
        self.trace.append("%s -> %s%s %s" % (shown, p.returncode, " (%s killed)" % hit[0] if hit else "", self.said[:200]))
        if self.verbose:
            print(self.trace[-1], flush=True)
        if p.returncode < 0 and "client" not in hit:
            raise Wrong("%s ended by signal %d" % (shown, -p.returncode))
        if re.search(r"AddressSanitizer|Assertion|corrupt|internal error", self.said):
            raise Wrong("%s: %s" % (shown, self.said))
        return p.returncode, out

    def stop(self):
        raise Wrong("told to end")

    def must(self, *args, **kw):
        rc, out = self.call(*args, **kw)
        if rc != 0 and self.full and args[0] not in ALWAYS and (rc == 6 or FULL_WORDS.search(self.said)):
            raise NoSpace(args[0])
        if rc != 0:
            raise Wrong("%s: status %d: %s" % (" ".join(args)[:200], rc, self.said))
        return out

    def victim(self, box):
        """Whom to kill during the next call, or None."""
        if not self.kill or self.rng.random() > 0.35:
            return None
        kind = self.rng.choice(["client", "client", "keeper", "keeper", "keeper", "init"])
        if kind == "client" or not box:
            return ("client", None)
        rc, out = self.call("inspect", "--json", box.name)
        pid = json.loads(out).get(kind + "_pid") if rc == 0 else 0
        return (kind, pid) if pid and pid > 1 else ("client", None)

    def ask(self, box, ops=(), data=False, disturb=None):
        """One exec. Gives (errors, tree), or None if it did not end well."""
        request = json.dumps({"ops": list(ops), "roots": self.roots, "data": data}).encode()
        rc, out = self.call("exec", "--no-tty", box.name, "--", "/usr/bin/python3", "-ISBc", AGENT, data=request,
                            disturb=disturb)
        if rc != 0:
            if not (disturb and self.hit) and not self.full:
                raise Wrong("exec in %s: status %d: %s" % (box.name, rc, self.said))
            return None
        answer = json.loads(out)
        return answer["errors"], answer["tree"]

    def ask_again(self, box, data=False):
        """After a kill: a box may be found dead a moment after it was found running."""
        for _ in range(20):
            request = json.dumps({"ops": [], "roots": self.roots, "data": data}).encode()
            rc, out = self.call("exec", "--no-tty", box.name, "--", "/usr/bin/python3", "-ISBc", AGENT, data=request)
            if rc == 0:
                answer = json.loads(out)
                return answer["errors"], answer["tree"]
            if not self.full and not self.steady(box):
                break
            time.sleep(0.1)
        raise Wrong("%s cannot be looked at: %s" % (box.name, self.said))

    # ---- comparing

    def check_tree(self, box, times=True):
        self.up(box)
        errors_tree = self.ask(box)
        if errors_tree is None:
            return  # full
        wrong = box.tree.compare(errors_tree[1], times)
        if wrong:
            raise Wrong("%s is not as it should be: %s" % (box.name, "; ".join(wrong[:6])))
        self.counts["trees compared"] += 1
        self.sync(box, {"turn": box.tree})

    def log(self, box):
        return self.log_named(box.name)

    def add_point(self, box, number, entry, tree):
        if self.hit and entry["parent"] in box.points:
            box.head = entry["parent"]  # what was cut short may have been taken back in between
        if entry["parent"] != box.head:
            raise Wrong("%s@%d: its parent is %s, not %s" % (box.name, number, entry["parent"], box.head))
        if box.unseen is not None:
            tree = None
        box.points[number] = Point(tree and tree.copy(), box.head, entry["kind"], entry["origin"])
        box.head = number

    def sync(self, box, kinds, least=0, most=1, head=None, before=None):
        """Learns the new checkpoints: kinds says what those of a kind hold. head: where it must be then. A turn
        that is not among them is a late one: it holds what was there before."""
        log = self.log(box)
        gone = set(box.points) - set(log)
        if gone:
            raise Wrong("%s: checkpoints %s are gone" % (box.name, sorted(gone)))
        new = sorted(set(log) - set(box.points))
        for n in list(new):
            kind = log[n]["kind"]
            late = kind == "turn" and (kind not in kinds or (before is not None and n != new[-1]))
            if late:
                now = box.tree if before is None else before
                head_tree = box.points[box.head].tree
                self.counts["checkpoints of nothing" if head_tree and model.same(head_tree, now) else "late turns"] += 1
                self.add_point(box, n, log[n], now)
                new.remove(n)
                continue
            if kind not in kinds:
                raise Wrong("%s@%d: a checkpoint of kind %s that nobody made" % (box.name, n, kind))
            self.add_point(box, n, log[n], kinds[kind])
        if not least <= len(new) and not (self.full or self.hit):
            head_tree = box.points[box.head].tree
            raise Wrong("%s: %d new checkpoints, not %d, though other than head is %s" % (box.name, len(new), least, list(
                model.difference(head_tree, box.tree).items())[:4] if head_tree else "who knows"))
        if len(new) > most and not (self.hit or self.full):
            raise Wrong("%s: %d new checkpoints %s, not %d" % (box.name, len(new), new, most))
        if head is not None:
            box.head = head if head >= 0 else [n for n in log if log[n]["head"]][0]
        self.check_log(box, log)
        return new

    def check_log(self, box, log):
        if [n for n in log if log[n]["head"]] != [box.head]:
            raise Wrong("%s: head is %s, not %d" % (box.name, [n for n in log if log[n]["head"]], box.head))
        for n, p in box.points.items():
            e = log[n]
            if self.loose in e["tags"]:
                p.tags.add(self.loose)
            else:
                p.tags.discard(self.loose)
            if (e["parent"], set(e["tags"]), e["kind"]) != (p.parent, p.tags, p.kind if n or p.kind == "fork" else "base"):
                raise Wrong("%s@%d is %s, not %s" % (box.name, n, e, (p.parent, p.tags, p.kind)))

    # ---- boxes

    def up(self, box):
        if not box.running:
            rc, _ = self.call("start", box.name)
            if rc != 0:
                self.must("start", box.name)
            box.running = True

    def create(self, first=False):
        name = "m%d" % self.made
        self.made += 1
        manual = self.rng.random() < 0.2
        id_ = self.must("create", "--name", name, "--history", "manual" if manual else "on").decode().strip()
        self.ids.add(id_)
        box = Box(name, id_, (self.base or Tree()).copy(), manual)
        self.boxes.append(box)
        if first:
            self.look_around(box)
        else:
            self.check_tree(box)

    def look_around(self, box):
        """What the template has, and what this machine can do."""
        probe = ["/usr/bin/python3", "-ISBc", """
import json, os
def small(d):
    n = 0
    for base, dirs, files in os.walk(d):
        n += 1 + len(files)
        for f in files + dirs:
            st = os.lstat(os.path.join(base, f))
            if st.st_uid or st.st_gid or st.st_size > 60000 or (st.st_nlink > 1 and f in files):
                return False
    return 3 <= n <= 12
found = [d for p in ("/usr/share/doc", "/etc", "/usr/share/perl5", "/var/lib/dpkg") if os.path.isdir(p)
         for d in sorted(os.path.join(p, n) for n in os.listdir(p)) if os.path.isdir(d) and not os.path.islink(d) and small(d)]
can = {}
open("/root/probe", "w").close()
for name, do in (("owners", lambda: os.chown("/root/probe", 33, 33)), ("attributes", lambda: os.setxattr("/root/probe", "user.a", b"1"))):
    try:
        do()
        can[name] = True
    except OSError:
        can[name] = False
os.unlink("/root/probe")
print(json.dumps([found, can]))"""]
        found, can = json.loads(self.must("exec", box.name, "--", *probe))
        self.lazy = self.lazy or json.loads(self.must("pool", "--json"))["kind"] == "plain"
        usr = [d for d in found if d.startswith("/usr/")]
        other = [d for d in found if not d.startswith("/usr/")]
        removable = self.rng.sample(usr, min(2, len(usr))) + self.rng.sample(other, min(1, len(other)))
        self.roots += removable
        self.gen = Generator(self.rng, self.roots, removable, can["owners"], can["attributes"], *FILES)
        self.must("rm", "--force", box.name)
        self.boxes.remove(box)
        self.made += 1
        id_ = self.must("create", "--name", "m%d" % self.made).decode().strip()
        box = Box("m%d" % self.made, id_, Tree(), False)
        self.made += 1
        self.ids.add(id_)
        self.boxes.append(box)
        self.base = Tree.told(self.ask(box, data=True)[1])
        self.base.nodes = {i: n._replace(low=True) for i, n in self.base.nodes.items()}
        box.tree = self.base.copy()
        box.points[0].tree = self.base.copy()
        self.sync(box, {})

    def adopt_tree(self, box, allowed):
        """After an exec that did not end well: other than at these paths nothing may have changed."""
        answer = self.ask_again(box, data=True)
        real = Tree.told(answer[1])
        for p in model.difference(box.tree, real):
            if not any(p == a or p.startswith(a + "/") for a in allowed):
                raise Wrong("%s: %r changed in an exec that was cut short and did not mean it" % (box.name, p))
        for p in real.paths:
            if not box.tree.get(p) or box.tree.get(p).low:  # a new name may be the template's file, renamed
                real.put(p, real.get(p)._replace(low=True))
        box.tree = real
        box.touched = True

    def steady(self, box, start=True):
        """After something was killed: until the box is there again and nothing runs in it. False: it is gone."""
        for n in range(200):
            rc, out = self.call("inspect", "--json", box.name)
            if rc == 3:
                return False
            if rc != 0:
                self.counts["boxes that were not to be seen for a moment"] += 1
                time.sleep(0.05)
                continue
            state = json.loads(out)["state"]
            box.running = state == "running"
            if state == "stopped":
                if not start:
                    return True
                self.call("start", box.name)
            elif state == "running":
                rc, out = self.call("ps", "--json", box.name)
                told = json.loads(out) if rc == 0 else None
                if told and not any(e["running"] for e in told["execs"]) and len(told["processes"]) <= 1:
                    return True
            time.sleep(0.02)
        raise Wrong("%s does not come to rest: %s" % (box.name, out[:2000]))

    def recover(self, box, kinds, outcomes):
        """After a disturbed operation. outcomes: [(tree, head or None)]: one of them must be so."""
        if not self.steady(box):
            raise Wrong("%s is gone" % box.name)
        log = self.log(box)
        head = [n for n in log if log[n]["head"]][0]
        answer = self.ask_again(box)
        told = []
        for tree, want in outcomes:
            candidate = tree.copy()
            wrong = candidate.compare(answer[1])
            if not wrong and (want is None or want == head):
                box.tree = candidate
                self.sync(box, dict(kinds, turn=candidate), 0, 9, -1)
                self.counts["outcomes after a kill"] += 1
                return head
            told.append(wrong[:3] or ["head is %d, not %s" % (head, want)])
        raise Wrong("%s is in none of the states that it may be in: %s" % (box.name, told))

    # ---- operations

    @staticmethod
    def touches(tree, ops):
        """The paths that operations may have changed when they were cut short."""
        found = {p for op in ops for p in op[1:3] if isinstance(p, str) and p.startswith("/")}
        others = {i for p in found for q, i in tree.paths.items() if q == p}
        return found | {p + ".new" for p in found} | {q for q, i in tree.paths.items() if i in others}

    def op_exec(self, box):
        self.up(box)
        ops = self.gen.make(box.tree, self.rng.choice([1, 2, 3, 6, 12]))
        before = box.tree
        disturb = self.victim(box)
        answer = self.ask(box, ops, disturb=disturb)
        self.counts["file operations"] += len(ops)
        if answer is None:
            touched = self.touches(before, ops)
            if self.full:
                box.unseen = touched  # looked at when there is space again
                return
            if not self.steady(box):
                raise Wrong("%s is gone after an exec" % box.name)
            self.adopt_tree(box, touched)
            self.sync(box, {"turn": box.tree}, 0, 2)
            return
        errors, listing = answer
        box.tree = before.copy()
        for op, e in zip(ops, errors):
            if e == errno.EXDEV and op[0] == "rename" and box.tree.get(op[1]).type == "d":
                break  # overlayfs cannot move a directory of the template
            if e and self.full and e in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
                self.counts["file operations without space"] += 1
                box.tree = before
                box.unseen = self.touches(before, ops)
                return
            if e:
                raise Wrong("%s: %s: %s" % (box.name, op[:2], os.strerror(e)))
            box.tree.apply(op)
        wrong = box.tree.compare(listing)
        if wrong:
            raise Wrong("%s after %s: %s" % (box.name, [o[:2] for o in ops], "; ".join(wrong[:6])))
        box.touched = True
        if box.manual:
            self.sync(box, {}, 0, 0)
        else:
            least = int(box.changed() and not self.lazy)
            self.sync(box, {"turn": box.tree}, least, 1, before=before)

    def op_checkpoint(self, box):
        disturb = self.victim(box)
        tag = "t%d" % self.rng.randrange(6) if self.rng.random() < 0.3 else None
        rc, out = self.call("checkpoint", "-m", "asked for", *(["--tag", tag] if tag else []), box.name, disturb=disturb)
        if rc == 0:
            number = int(out)
            if tag and number in self.log(box):
                self.tagged(box, number, tag)
            new = self.sync_tags(box, {"manual": box.tree}, 1, 1, tag, number)
            if number not in new or max(new) != number:
                raise Wrong("%s: checkpoint said %d, log has %s" % (box.name, number, new))
            return
        self.failed("checkpoint", rc)
        self.loose = tag
        self.recover_or_same(box, {"manual": box.tree}, [(box.tree, None)])

    def tagged(self, box, number, tag):
        for p in box.points.values():
            p.tags.discard(tag)
        if number in box.points:
            box.points[number].tags.add(tag)

    def sync_tags(self, box, kinds, least, most, tag, number):
        """sync() of a checkpoint that is born with a tag."""
        if not tag:
            return self.sync(box, kinds, least, most)
        log = self.log(box)
        new = sorted(set(log) - set(box.points))
        for n in new:
            self.add_point(box, n, log[n], kinds[log[n]["kind"]])
        self.tagged(box, number, tag)
        self.check_log(box, log)
        return new

    def log_later(self, box):
        if not self.full and not self.steady(box):
            raise Wrong("%s is gone" % box.name)
        return self.log(box)

    def failed(self, what, rc):
        """A failed operation must have a reason."""
        if self.hit:
            self.counts["cut short: " + what] += 1
            return
        if self.full and what not in ALWAYS:
            self.counts["no space: " + what] += 1
            if rc != 6 and not FULL_WORDS.search(self.said):
                raise Wrong("%s failed on a full disk with status %d and without saying so: %s" % (what, rc, self.said))
            return
        raise Wrong("%s: status %d: %s" % (what, rc, self.said))

    def recover_or_same(self, box, kinds, outcomes):
        if self.hit:
            return self.recover(box, kinds, outcomes)
        # failed without a kill: nothing at all may have happened
        self.sync(box, kinds, 0, 1)
        return None

    def ref(self, box, now=True):
        """(what to write, the point's number or None for now)"""
        r = self.rng.random()
        if now and r < 0.3:
            return self.rng.choice(["now", None]), None
        n = self.rng.choice(sorted(box.points))
        if box.points[n].tags and r < 0.6:
            return self.rng.choice(sorted(box.points[n].tags)), n
        if n == box.head and r < 0.8:
            return "head", n
        if n == 0 and r < 0.8:
            return "base", n
        return str(n), n

    def op_tag(self, box):
        n = self.rng.choice(sorted(box.points))
        tag = "t%d" % self.rng.randrange(6)
        has = [p for p in box.points.values() if tag in p.tags]
        disturb = self.victim(box)
        if has and self.rng.random() < 0.4:
            rc, _ = self.call("tag", "--delete", box.name, tag, disturb=disturb)
            if rc == 0:
                has[0].tags.discard(tag)
        else:
            rc, _ = self.call("tag", "%s@%d" % (box.name, n), tag, disturb=disturb)
            if rc == 2 and n == 0:
                return
            if rc == 0:
                self.tagged(box, n, tag)
        if rc != 0:
            self.failed("tag", rc)
            self.loose = tag
        self.check_log(box, self.log_later(box) if self.hit else self.log(box))

    def op_rollback(self, box):
        ref, n = self.ref(box, now=False)
        self.go_back(box, n, "rollback", box.name, ref)

    def op_undo(self, box):
        turns = self.rng.randrange(1, 4)
        at = box.head
        steps = turns - int(box.changed())
        for _ in range(steps):
            at = None if at is None else box.points[at].parent
        if self.rng.random() < 0.5 and turns == 1:
            self.go_back(box, at, "undo", box.name)
        else:
            self.go_back(box, at, "undo", box.name, str(turns))

    def go_back(self, box, n, *args):
        if box.points[box.head].tree is None or (n is not None and box.points[n].tree is None):
            return
        before = box.tree
        least = int(box.changed())
        # An undo counts what has no checkpoint yet as one, even if it is nothing but times.
        if args[0] == "undo" and box.touched and not least:
            return
        disturb = self.victim(box)
        rc, _ = self.call(*args, disturb=disturb)
        if rc == 3 and n is None:
            self.sync(box, {"rollback": before}, least, 1)
            return
        if n is None and rc == 0:
            raise Wrong("%s: undone to before its beginning" % box.name)
        if rc != 0:
            self.failed(args[0], rc)
            if self.hit:
                outcomes = [(before, None)] + ([(box.points[n].tree, n)] if n is not None else [])
                self.recover(box, {"rollback": before}, outcomes)
            else:
                self.sync(box, {"rollback": before}, 0, 1)
                self.after_failure(box)
            return
        if self.hit and not self.steady(box):
            raise Wrong("%s is gone" % box.name)
        self.sync(box, {"rollback": before}, least, 1, n)
        box.tree = box.points[n].tree.copy()
        box.touched = False
        if self.rng.random() < 0.6 and box.running:
            self.check_tree(box)

    def after_failure(self, box):
        """On a full disk a box may be down after a failed operation, but it may not be lost."""
        rc, out = self.call("inspect", "--json", box.name)
        if rc != 0:
            raise Wrong("%s cannot be inspected: %s" % (box.name, self.said))
        box.running = json.loads(out)["state"] == "running"

    def op_fork(self, box):
        if len(self.boxes) >= BOXES_MAX:
            return self.op_delete(self.rng.choice(self.boxes))
        ref, n = self.ref(box)
        if n is not None and box.points[n].tree is None or box.points[box.head].tree is None:
            return
        least = int(n is None and box.changed())
        tree = box.tree if n is None else box.points[n].tree
        disturb = self.victim(box)
        name = "m%d" % self.made
        self.made += 1
        target = box.name if ref is None else "%s@%s" % (box.name, ref)
        rc, out = self.call("fork", "--name", name, target, disturb=disturb)
        if rc != 0:
            self.failed("fork", rc)
            if self.hit:
                self.recover(box, {"manual": box.tree}, [(box.tree, None)])
            else:
                self.sync(box, {"manual": box.tree}, 0, 1)
            self.after_fork(box, name, n, tree)
            return
        self.sync(box, {"manual": box.tree}, least, 1)
        self.forked(box, name, out.decode().strip(), box.head if n is None else n)

    def after_fork(self, box, name, n, tree):
        """A fork that failed or was cut short: it is there as a whole, or not at all."""
        rc, out = self.call("inspect", "--json", name)
        if rc == 3:
            return
        if rc != 0:
            raise Wrong("inspect %s: status %d: %s" % (name, rc, self.said))
        if not self.hit:
            raise Wrong("a fork that failed is there")
        d = json.loads(out)
        if n is None:  # which checkpoint was "now"?
            n = int(self.log_named(name)[0]["origin"].partition("@")[2])
            if n not in box.points or not model.same(box.points[n].tree, tree):
                raise Wrong("%s was forked from %s@%d, which is not what it was" % (name, box.name, n))
        self.forked(box, name, d["id"], n)

    def log_named(self, name):
        return {e["number"]: e for e in json.loads(self.must("log", "--json", name))}

    def forked(self, box, name, id_, n):
        self.ids.add(id_)
        new = Box(name, id_, box.points[n].tree.copy(), box.manual)
        new.points[0].kind = "fork"
        new.points[0].origin = "%s@%d" % (box.id, n)
        self.alike[(id_, 0)] = (box.id, n)
        self.boxes.append(new)
        if self.hit and not self.steady(new):
            self.boxes.remove(new)
            return
        log = self.log(new)
        if set(log) != {0} or log[0]["origin"] != "%s@%d" % (box.id, n):
            raise Wrong("%s begins with %s" % (name, log))
        self.check_tree(new)

    def op_diff(self, box):
        (ra, a), (rb, b) = self.ref(box, now=False), self.ref(box)
        pa = box.points[a]
        least = int(b is None and box.changed())
        tb = box.tree if b is None else box.points[b].tree
        rc, out = self.call("diff", "--json", box.name, ra, *([rb] if rb else []))
        if rc != 0:
            self.failed("diff", rc)
            return self.sync(box, {}, 0, 0)
        self.sync(box, {"manual": box.tree}, least, int(b is None))
        if pa.tree is None or tb is None:
            return
        real = {}
        for line in out.splitlines():
            d = json.loads(line)
            real[d["path"]] = (d["kind"], {"file": "f", "directory": "d", "symlink": "l", "fifo": "p"}.get(d["type"], d["type"]),
                               tuple(sorted(d["changed"])), int(d["mode"], 8), d["size"] if d["type"] == "file" else None)
        want = {os.fsencode(p).decode("utf-8", "replace"): w for p, w in model.difference(pa.tree, tb).items()}
        if real != want:
            raise Wrong("diff %s %s %s: %s" % (box.name, ra, rb, [
                (p, "den:", real.get(p), "model:", want.get(p)) for p in sorted(set(real) | set(want))
                if real.get(p) != want.get(p)][:4]))
        self.counts["diffs compared"] += 1

    # ---- the rest

    def op_prune(self, box):
        everything = self.rng.random() < 0.6
        used = {p.origin for b in self.boxes for p in b.points.values()}
        go = {n for n, p in box.points.items() if n not in (0, box.head) and not p.tags and
              "%s@%d" % (box.id, n) not in used} if everything else set()
        disturb = self.victim(box)
        rc, out = self.call("prune", "--json", *(["--all"] if everything else []), box.name, disturb=disturb)
        if rc == 0:
            box.forget(go)  # before anything else is asked: the power may go meanwhile
        log = self.log_later(box) if self.hit else self.log(box)
        if rc != 0:
            self.failed("prune", rc)
            if not set(box.points) & go - set(log):
                return
            box.forget(go)
        if set(log) != set(box.points):
            raise Wrong("%s after prune: %s, not %s" % (box.name, sorted(log), sorted(box.points)))
        self.check_log(box, log)

    def op_stop(self, box):
        disturb = self.victim(box)
        verb = ("stop", "--grace", "0") if box.running else ("start",)
        rc, _ = self.call(*verb, box.name, disturb=disturb)
        if rc != 0:
            self.failed(verb[0], rc)
        if rc != 0 or self.hit:
            if not self.steady(box, start=False):
                raise Wrong("%s is gone" % box.name)
            return
        box.running = not box.running
        if box.running and self.rng.random() < 0.5:
            self.check_tree(box)
        self.sync(box, {}, 0, 0)

    def op_look(self, box):
        self.check_tree(box)

    def op_delete(self, box):
        disturb = self.victim(box)
        rc, _ = self.call("rm", "--force", box.name, disturb=disturb)
        if rc != 0:
            self.failed("rm", rc)
            if self.steady(box):
                self.sync(box, {}, 0, 0)
                return
        self.boxes.remove(box)
        self.deleted.append(box)

    WEIGHTS = {"exec": 34, "checkpoint": 5, "tag": 4, "rollback": 8, "undo": 5, "fork": 9, "diff": 12, "merge": 14,
               "prune": 3, "stop": 3, "look": 3, "delete": 3}

    def step(self):
        if not self.boxes or (len(self.boxes) < BOXES_MAX and self.rng.random() < 0.02):
            return self.attempt(lambda: self.create(first=self.base is None))
        name = self.rng.choices(list(self.WEIGHTS), list(self.WEIGHTS.values()))[0]
        self.counts[name] += 1
        self.counts["operations"] += 1
        self.hit, self.loose = False, None
        seen = [b for b in self.boxes if b.unseen is None]
        if seen:
            self.attempt(lambda: getattr(self, "op_" + name)(self.rng.choice(seen)))
        if self.hit:
            self.states()

    def attempt(self, what):
        try:
            what()
        except NoSpace as e:
            self.counts["no space: %s" % e] += 1

    def states(self):
        """After a kill: which boxes still run?"""
        for b in list(self.boxes):
            if not self.steady(b, start=False):
                raise Wrong("%s is gone" % b.name)

    # ---- what is in the pool

    def pool_dir(self):
        """Where the pool can be seen: an image is mounted only where a keeper is."""
        if not os.path.exists(self.state + "/pool.img"):
            return self.state + "/pool"
        for b in self.boxes:
            pid = json.loads(self.must("inspect", "--json", b.name))["keeper_pid"]
            if pid and os.path.isdir("/proc/%d/root%s/pool/%s" % (pid, self.state, b.id)):
                return "/proc/%d/root%s/pool" % (pid, self.state)
        return None

    def unexplained(self):
        top = self.pool_dir()
        if not top:
            return []
        wrong = []
        for name in sorted(os.listdir(top)):
            if name in ("layers", ".index"):
                continue
            box = [b for b in self.boxes if b.id == name]
            if not box:
                wrong.append(name)
                continue
            b = box[0]
            want = {"c%d" % n for n in b.points if n or b.points[0].kind == "fork"}
            have = set(os.listdir(top + "/" + name))
            works = {n for n in have if re.fullmatch(r"w\d+", n)}
            wrong += ["%s/%s is missing" % (b.name, n) for n in want - have]
            # c0 of a box that is no fork: only of an ordinary user with a range, whose first start gives
            # files their owners
            owners = {"c0"} if os.environ.get("VARIANT") == "range" else set()
            wrong += ["%s/%s" % (b.name, n) for n in have - want - works - owners]
            if len(works) != 1:
                wrong.append("%s has works %s" % (b.name, sorted(works)))
        return wrong

    def check_pool(self, patience=4):
        end = time.monotonic() + patience
        while True:
            for b in self.boxes:
                self.up(b)
            wrong = self.unexplained()
            if not wrong:
                return
            if self.kill or self.spaceless:
                self.must("gc")  # which spares what is younger than ten seconds: it may be in the making
            if time.monotonic() > end:
                raise Wrong("in the pool, and not explained: %s" % wrong[:8])
            time.sleep(0.2)

    def finish(self):
        for b in list(self.boxes):
            if b.running:
                self.check_tree(b)
        self.check_pool(16 if self.kill or self.spaceless else 4)
        self.remove_all()

    def remove_all(self):
        for i in self.must("ls", "--quiet").decode().split():
            self.ids.add(i)
            self.must("rm", "--force", i)
        self.boxes.clear()
        end = time.monotonic() + (16 if self.kill or self.spaceless else 6)
        while True:
            self.must("gc")
            fault.reap()
            left = fault.leftovers(self.state, self.ids) + ["in the pool: " + n for n in self.left_in_pool()]
            left = [l for l in left if not any(l.startswith("process %d " % p) for p in disks)]
            if not left:
                return
            if time.monotonic() > end:
                raise Wrong("left behind: %s" % left[:8])
            time.sleep(0.3)

    def left_in_pool(self):
        image = self.state + "/pool.img"
        if not os.path.exists(image):
            names = os.listdir(self.state + "/pool")
        elif any(open(f).read().startswith(image) for f in self.backing()):
            return ["it is still mounted"]
        else:
            with tempfile.TemporaryDirectory() as d:
                names = subprocess.run(["unshare", "-m", "sh", "-c", 'mount -o loop,ro "$0" "$1" && ls -A "$1"', image, d],
                                       stdout=subprocess.PIPE, check=True).stdout.decode().split("\n")[:-1]
        return [n for n in names if n not in ("layers", ".index")]

    @staticmethod
    def backing():
        for d in os.listdir("/sys/block"):
            f = "/sys/block/%s/loop/backing_file" % d
            if d.startswith("loop") and os.path.exists(f):
                yield f
