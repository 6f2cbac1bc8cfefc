#!/usr/bin/env python3
"""Measures the store: history, forks, reads and writes in boxes.

    bench/store.py --build build [--quick] [--rounds N] [--out docs] [--state DIR]
                   [--only PART,...] [--raw FILE]

Writes docs/performance-store.svg and the part of docs/performance.md between its two markers. What is
compared runs interleaved, in random order. Needs root. Cleans up after itself.

--quick: a few rounds, nothing written. --only: of forks, history, turns, depth, dirty, io, commit. --raw: all
samples go to FILE, and of those that are in it already the parts that --only leaves out are taken. Nothing is
written to docs unless all parts are there.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import time

import run
import store_io

BEGIN = "<!-- measured: written by bench/store.py, do not edit -->"
END = "<!-- end of what was measured of the store -->"
MIB = 1 << 20
CASES = [("1 MiB", MIB, 1), ("100 MiB", 100 * MIB, 1), ("1 GiB", 1024 * MIB, 1),
         ("1,000 files", 4 * MIB, 1000), ("50,000 files", 200 * MIB, 50000)]
LARGE = ("1 GiB", "50,000 files")
OPERATIONS = ["checkpoint", "fork", "rollback", "delete"]
GOAL_MS = 10
FLAT = 1.5
# Forks first: in a new pool its growth tells what they take.
PARTS = ["forks", "history", "turns", "depth", "dirty", "io", "commit"]


class Store(run.Bench):
    def __init__(self, args):
        super().__init__(args)
        self.rounds = args.rounds or (3 if args.quick else 20)
        self.driver = subprocess.Popen([self.tool("history")], env=self.env, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True, bufsize=1)
        self.serial = 0
        self.ns = "-"

    def clean(self):
        self.driver.stdin.close()
        self.driver.wait()
        super().clean()

    def tell(self, *words):
        """One command to bench-history; its samples."""
        self.driver.stdin.write("\t".join(words) + "\n")
        s = run.Samples()
        for line in iter(self.driver.stdout.readline, ""):
            if line == "ok\n":
                return s
            if line.startswith("error: "):
                raise RuntimeError(f"{' '.join(words)}: {line[7:].strip()}")
            s.read(line)
        raise RuntimeError("bench-history has ended")

    def name(self, prefix):
        self.serial += 1
        return f"{prefix}-{self.serial}"

    def box(self, case, history="manual", dirty=False):
        """A running box with so many changes, and a program in it."""
        label, size, files = case
        name = self.name("s")
        self.tell("create", name, history)
        self.run(self.den, "cp", self.tool("io"), f"{name}:/opt/io")
        self.tell("exec", name, "sync -f /")
        self.tell("exec", name, f"/opt/io / fill data {size} {files}" + ("" if dirty else "; sync -f /"))
        self.tell("detach", name)
        return name

    def touch(self, name):
        self.tell("exec", name, "date +%N >/root/changed; sync -f /root")

    def image_bytes(self):
        """What the pool takes on the host."""
        image = self.state + "/pool.img"
        return os.stat(image).st_blocks * 512 if os.path.exists(image) else None

    def settle(self):
        """What was deleted is taken apart in the background: not while something else is measured."""
        self.run(self.den, "gc", check=False)
        time.sleep(1 if self.quick else 5)

    # ---- what is measured ----

    def history(self):
        """All clean on disk but for one small file, written just before."""
        boxes = {}
        for case in CASES:
            boxes[case[0]] = self.box(case)
            self.tell("checkpoint", boxes[case[0]], "first")
        out = {label: run.Samples() for label in boxes}
        for r in range(-2, self.rounds):
            run.say(f"history: round {r + 1} of {self.rounds}")
            for label, box in random.sample(list(boxes.items()), len(boxes)):
                s, fork = out[label], self.name("f")
                self.touch(box)
                self.add(s, self.tell("checkpoint", box, "checkpoint"), r)
                self.touch(box)
                self.add(s, self.tell("fork", box, fork, "fork"), r)
                self.tell("detach", fork)
                self.touch(fork)
                self.add(s, self.tell("delete", fork, "delete"), r)
                self.touch(box)
                self.add(s, self.tell("rollback", box, "head", "rollback"), r)
                self.tell("detach", box)
        for box in boxes.values():
            self.tell("delete", box, "delete")
        return out

    @staticmethod
    def add(to, samples, r):
        for name, values in samples.items():
            if r >= 0:
                to.setdefault(name, []).extend(values)

    def dirty(self):
        """Nothing synced: the checkpoint has to wait for the disk. And: deleting a box that shares nothing."""
        out = {label: run.Samples() for label, _, _ in CASES}
        for r in range(1 if self.quick else 5):
            for case in random.sample(CASES, len(CASES)):
                if case[0] in LARGE and r >= 3:
                    continue
                run.say(f"all dirty: {case[0]}, {r + 1}")
                box = self.box(case, dirty=True)
                self.add(out[case[0]], self.tell("checkpoint", box, "checkpoint"), 0)
                self.touch(box)
                self.add(out[case[0]], self.tell("delete", box, "delete"), 0)
        return out

    def forks(self):
        count, case = (10 if self.quick else 100), next(c for c in CASES if c[0] == "1 GiB")
        box = self.box(case)
        self.tell("checkpoint", box, "first")
        self.touch(box)
        self.settle()
        out = {"count": count, "of": case[0], "before": self.image_bytes()}
        began, ms = time.monotonic(), run.Samples()
        for i in range(count):
            self.add(ms, self.tell("fork", box, f"many-{i}", "fork"), 0)
        out["total"] = (time.monotonic() - began) * 1e3
        self.touch(box)
        time.sleep(2)
        out["after"] = self.image_bytes()
        for i in range(count):
            self.add(ms, self.tell("delete", f"many-{i}", "delete"), 0)
        out["ms"] = ms
        self.tell("delete", box, "delete")
        return out

    def turns(self):
        """What every exec costs because history is on."""
        boxes = {c[0]: self.box(c, history="on") for c in CASES if c[0] in ("1 MiB", *LARGE)}
        boxes["1 MiB, history off"] = self.box(CASES[0], history="off")
        out = {label: run.Samples() for label in boxes}
        for r in range(-2, self.rounds):
            for label, box in random.sample(list(boxes.items()), len(boxes)):
                self.add(out[label], self.tell("turn", box, "true", "nothing"), r)
                self.add(out[label], self.tell("turn", box, "date +%N >/root/changed", "one file"), r)
        run.say("turns: measured")
        for box in boxes.values():
            self.tell("delete", box, "delete")
        return out

    def commit(self):
        """What podman does instead: commit, then run from that."""
        if not store_io.podman_image(self):
            return None
        out = {}
        for label, size, files in CASES:
            rounds = 1 if self.quick or label in LARGE else 5
            out[label] = run.Samples()
            for r in range(rounds):
                run.say(f"podman commit: {label}, {r + 1}")
                name = self.name("p")
                self.in_ns(*store_io.podman_run(self, "-d", "--name", name), "sleep", "100000")
                self.in_ns(*self.podman_argv("exec", name, "/opt/io", "/data", "fill", "data", str(size),
                                             str(files)))
                self.in_ns(*self.podman_argv("exec", name, "/opt/io", "/data", "settle"))
                self.timed(out[label], "podman commit", "commit", "-q", name, name)
                self.timed(out[label], "podman run from it", "run", "--rm", *store_io.LIMITS, "-v",
                           "/usr:/usr:ro", name, "true")
                self.timed(out[label], "podman rm", "rm", "-f", "-t", "0", name)
                self.in_ns(*self.podman_argv("rmi", "-f", name), check=False)
        return out

    def timed(self, samples, label, *argv):
        began = time.monotonic_ns()
        self.in_ns(*self.podman_argv(*argv))
        samples.setdefault(label, []).append((time.monotonic_ns() - began) / 1e6)


# ---- what it says ----

def ms(v):
    return "-" if v is None else f"{v:.0f}" if v >= 100 else f"{v:.1f}" if v >= 10 else f"{v:.2f}"


def both(s, name):
    return f"{ms(s.median(name))} / {ms(s.p95(name))}" if s.get(name) else "-"


def spread(h, operation):
    v = [s.median(operation) for s in h.values()]
    return max(v), max(v) / min(v)


def io_ratio(io, row, name=store_io.DEN):
    a, b = io["places"][name].median(row), io["places"][store_io.HOST].median(row)
    return a / b if a and b else None


def worst(io, rows):
    have = [(io_ratio(io, r), r) for r in rows if io_ratio(io, r)]
    return max(have) if have else (None, "")


def goals(r):
    out = []
    for op in OPERATIONS if r.get("history") else []:
        top, ratio = spread(r["history"], op)
        out.append(run.verdict(f"{op} of a running box, slowest median: at most", top, GOAL_MS, " ms"))
        out.append(run.verdict(f"{op}, slowest against fastest: flat, at most", ratio, FLAT, "x"))
    for text, rows, limit in (("reads", store_io.READS, 1.1), ("small writes", store_io.SMALL_WRITES, 1.25)):
        if r.get("io"):
            value, row = worst(r["io"], rows)
            out.append(run.verdict(f"{text} in a box against the host, worst ({row}): at most", value, limit, "x"))
    if r.get("depth"):
        d = r["depth"]
        value, row = max((d["deep"].median(n) / d["first"].median(n), n) for n in d["first"])
        out.append(run.verdict(f"reads {d['generations']} generations deep against 1, worst ({row}): at most",
                               value, 1.1, "x"))
    return out


def history_text(r):
    h, n = r["history"], max(len(s["checkpoint"]) for s in r["history"].values())
    out = ["### History of a running box", "", "![](performance-store.svg)", "",
           f"Median / 95th percentile of {n}, through libden, of a box in which a program runs. All it changed is "
           "on disk but for one small file, written just before and synced. Fork: until the new box runs; it "
           "begins as the box is at this moment, so it makes a checkpoint first. Rollback: to the checkpoint "
           "before, until the box runs again; what was present is kept as a checkpoint too. Delete: of a running "
           "fork, until answered.", ""]
    rows = [(label, *(both(s, op) for op in ("checkpoint", "fork", "fork, first program ended", "rollback",
                                            "delete"))) for label, s in h.items()]
    rows.append(("slowest to fastest median", *(f"{spread(h, op)[1]:.2f}x" for op in
                                               ("checkpoint", "fork", "fork, first program ended", "rollback",
                                                "delete"))))
    return out + run.table(["changes", "checkpoint", "fork", "fork and `true` ended in it", "rollback", "delete"],
                           rows)


def dirty_text(r):
    rows = [(label, len(s["checkpoint"]), both(s, "checkpoint"), both(s, "delete")) for label, s in
            r["dirty"].items()]
    return ["### All dirty", "", "The same changes, none of them synced by anybody, at the first checkpoint: it "
            "waits until they are on disk. (The kernel begins to write by itself, so of the larger ones a part "
            "is.) Delete: of such a box, which shares nothing with any other.", ""] + run.table(
        ["changes", "times", "first checkpoint", "delete"], rows)


def forks_text(r):
    f = r["forks"]
    v = f["ms"]["fork"]
    tenth = max(1, len(v) // 10)
    disk = "not known: no image" if f["before"] is None else \
        f"{f['before'] / MIB:.0f} MiB before, {f['after'] / MIB:.0f} MiB after, so " \
        f"{(f['after'] - f['before']) / 1024 / f['count']:.0f} KiB each"
    return [f"### {f['count']} forks of one box with {f['of']} of changes, all alive", ""] + run.table(
        ["", ""], [("one, median / p95", both(f["ms"], "fork")),
                   (f"the first {tenth}, median", ms(statistics.median(v[:tenth]))),
                   (f"the last {tenth}, median", ms(statistics.median(v[-tenth:]))),
                   ("all, with a program run in each", f"{f['total']:.0f} ms"),
                   ("on disk (`pool.img`)", disk),
                   ("deleting one, median / p95", both(f["ms"], "delete"))])


def turns_text(r):
    keys = [f"{a}, {b}" for a in ("nothing", "one file") for b in ("ended", "next answer")]
    return ["### A turn", "", "An exec through libden, and when the next request is answered: what history does "
            "after a turn is done before that. Median / p95.", ""] + run.table(
        ["changes", "changes nothing: ended", "next answer", "writes one file: ended", "next answer"],
        [(label, *(both(s, k) for k in keys)) for label, s in r["turns"].items()])


def io_text(r):
    io = r["io"]
    names = [n for n in (store_io.HOST, store_io.DEN, store_io.OFF, store_io.BTRFS, store_io.PODMAN)
             if n in io["places"]]
    out = ["### Reads and writes", "", f"Median of {io['rounds']} rounds in ms, in random order, and the ratio to "
           "the host's own file system, which is on the same disk. Goals: reads within 1.10, small writes within "
           "1.25. \"btrfs in a file\" is what the pool is, without a box: it tells whose the difference is. Podman "
           "sees the host's programs through a bind mount; its data is on its own overlay.", ""]
    for title, rows, limit in (("reads", store_io.READS, 1.1), ("small writes", store_io.SMALL_WRITES, 1.25),
                               ("one large write", store_io.OTHER, None)):
        lines = []
        for row in rows:
            cells = []
            for n in names:
                v = io["places"][n].median(row)
                q = io_ratio(io, row, n)
                cells.append("-" if v is None else ms(v) if n == store_io.HOST else f"{ms(v)} ({q:.2f})")
            q = io_ratio(io, row)
            lines.append((row, *cells, "-" if not limit or not q else "met" if q <= limit else "**not met**"))
        out += run.table([title, *names, "goal"], lines)
    return out


def depth_text(r):
    d = r["depth"]
    tenth = max(1, len(d["forks"]) // 10)
    g = d["generations"]
    return [f"### {g} generations", "", f"A fork of a fork of a fork, each with 50 of 5,000 small files replaced, all "
            f"alive. Medians of {d['rounds']}, in turns. A fork at the beginning: "
            f"{ms(statistics.median(d['forks'][:tenth]))} ms, at the end: "
            f"{ms(statistics.median(d['forks'][-tenth:]))} ms.", ""] + run.table(
        ["", "depth 1", f"depth {g}", "ratio"],
        [(n, ms(d["first"].median(n)), ms(d["deep"].median(n)),
          f"{d['deep'].median(n) / d['first'].median(n):.2f}") for n in d["first"]])


def commit_text(r):
    if not r["commit"]:
        return []
    keys = ["podman commit", "podman run from it", "podman rm"]
    return ["### The same with podman", "", "A container with so many changes, all on disk: committed, a "
            "container run from that (`true`), the container removed. Median in ms, process start included; its "
            "storage driver is overlay, on the host's file system.", ""] + run.table(
        ["changes", "times", *keys], [(label, len(s[keys[0]]), *(ms(s.median(k)) for k in keys))
                                      for label, s in r["commit"].items()])


def markdown(r):
    out = [BEGIN, "", "## The store", "", f"Measured on {r['machine']}; {r['pool']}.", "",
           "### What was promised of it", ""]
    out += run.table(["promise", "measured", "limit", ""], goals(r))
    for part, text in (("history", history_text), ("dirty", dirty_text), ("forks", forks_text),
                       ("commit", commit_text), ("turns", turns_text), ("io", io_text), ("depth", depth_text)):
        out += text(r) if r.get(part) else []
    out += [f"- {n}" for n in r["notes"]] + [""] if r["notes"] else []
    return "\n".join(out + [END])


def svg(r):
    """Bars: each operation, by how much had been changed; a line at the goal."""
    h = r["history"]
    left, width, row, y = 190, 430, 20, 40
    high = max(max(s.p95(op) for s in h.values() for op in OPERATIONS), GOAL_MS * 1.1)
    parts = ['<text x="10" y="22" font-weight="bold">Of a running box, by what it has changed: median milliseconds '
             '(line: to the 95th percentile)</text>']
    for op in OPERATIONS:
        parts.append(f'<text x="10" y="{y + 13}" font-weight="bold">{op}</text>')
        for label, s in h.items():
            w, e = width * s.median(op) / high, width * s.p95(op) / high
            parts += [f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{label}</text>',
                      f'<rect x="{left}" y="{y}" width="{w:.1f}" height="15" fill="#2563eb"/>',
                      f'<line x1="{left + w:.1f}" y1="{y + 8}" x2="{left + e:.1f}" y2="{y + 8}" stroke="#64748b"/>',
                      f'<text x="{left + e + 6:.1f}" y="{y + 12}">{s.median(op):.1f}</text>']
            y += row
        y += 10
    x = left + width * GOAL_MS / high
    parts += [f'<line x1="{x:.1f}" y1="34" x2="{x:.1f}" y2="{y - 6}" stroke="#dc2626" stroke-dasharray="4 3"/>',
              f'<text x="{x:.1f}" y="{y + 8}" text-anchor="middle" fill="#dc2626">goal {GOAL_MS} ms</text>']
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" height="{y + 20}" '
            'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(parts) + "\n</svg>\n")


def write_docs(out, r):
    run.write_part(out, BEGIN, END, markdown(r))
    with open(os.path.join(out, "performance-store.svg"), "w") as f:
        f.write(svg(r))


def pool(b):
    lines = b.run(b.den, "pool").stdout.splitlines()
    fs = b.run("findmnt", "-no", "FSTYPE,OPTIONS", "-T", b.state).stdout.split()
    kind = next((l.split()[1] for l in lines if l.startswith("kind")), "none yet")
    return f"the pool is {kind}{' in a file' if b.image_bytes() else ''}, on {fs[0]} ({fs[1]})"


def load_raw(path):
    def samples(d):
        return run.Samples(d) if d and all(isinstance(v, list) for v in d.values()) else d

    if not path or not os.path.exists(path):
        return {}
    with open(path) as f:
        return json.load(f, object_hook=samples)


def main():
    args = run.options(__doc__, only="some of " + ", ".join(PARTS), raw="file of samples, read and written")
    only = args.only.split(",") if args.only else PARTS
    if set(only) - set(PARTS):
        sys.exit(f"bench: --only takes {', '.join(PARTS)}")
    b = Store(args)
    r = {**load_raw(args.raw), "machine": run.machine(), "notes": b.notes, "pool": "no pool"}
    measures = {"io": store_io.measure, "depth": store_io.depth}
    try:
        b.run(b.den, "rm", "--force", b.run(b.den, "create").stdout.strip())
        r["pool"] = pool(b)
        for part in PARTS:
            if part in only:
                b.settle()
                r[part] = measures[part](b) if part in measures else getattr(b, part)()
                if args.raw:
                    with open(args.raw, "w") as f:
                        json.dump(r, f)
    finally:
        b.clean()
    print(markdown(r))
    if not args.quick and all(part in r for part in PARTS):
        write_docs(args.out, r)
    bad = [g for g in goals(r) if g[3] != "met"]
    run.say(f"{len(bad)} of {len(goals(r))} promises of the store not met" if bad else "all promises met")


if __name__ == "__main__":
    main()
