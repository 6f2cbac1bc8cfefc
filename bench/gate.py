#!/usr/bin/env python3
"""Measures the gate: connections and bytes from a box to a server on the host's loopback.

    bench/gate.py --build build [--quick] [--rounds N] [--out docs] [--state DIR] [--srt DIR]

Writes the part of docs/performance.md between its two markers. Against a direct connection on loopback, against
slirp4netns, pasta and srt (sandbox-runtime, from npm, in DIR or its node_modules) where they are here and
work; all of them interleaved, in random order. The clock is in bench/net.c, on the client's side. Needs root.

--quick: a few rounds, nothing written.
"""
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

import run

BEGIN = "<!-- measured: written by bench/gate.py, do not edit -->"
END = "<!-- end of what was measured of the gate -->"
KIB, MIB = 1 << 10, 1 << 20
SIZES = [("64 B", 64), ("64 KiB", 64 * KIB), ("1 MiB", MIB), ("64 MiB", 64 * MIB), ("1 GiB", 1024 * MIB)]
SLOW = 64 * MIB  # more than this only between den and a direct connection
STREAMS = [1, 32]


class Gate(run.Bench):
    def __init__(self, args):
        super().__init__(args)
        self.rounds = args.rounds or (3 if args.quick else 12)
        self.net = self.tool("net")
        path = os.path.join(self.dir, "port")
        server = subprocess.Popen([self.net, "serve", path])
        self.cleanups.append(lambda: (server.kill(), server.wait()))
        self.until(lambda: os.path.exists(path), "the server")
        with open(path) as f:
            self.port = f.read().strip()
        self.ways = {"direct": lambda *a: [self.net, a[0], "127.0.0.1", self.port, *a[1:]]}
        self.add_den()
        for name, add in (("slirp4netns", self.add_slirp), ("pasta", self.add_pasta), ("srt", lambda: self.add_srt(args.srt))):
            try:
                add()
                self.once(name, "connect", "2")
            except (OSError, RuntimeError, subprocess.SubprocessError) as e:
                self.ways.pop(name, None)
                self.notes.append(f"{name} is not compared: {str(e)[:120]}")

    def until(self, what, name):
        for _ in range(200):
            if what():
                return
            time.sleep(0.05)
        raise RuntimeError(f"{name} does not begin")

    def add_den(self):
        self.box = self.run(self.den, "create", "--allow", f"host:{self.port}", "--mount",
                            f"{os.path.dirname(self.net)}:/bench:ro").stdout.strip()
        self.ways["den"] = lambda *a: [self.den, "exec", self.box, "--", "/bench/bench-net", a[0], "host.den",
                                       self.port, *a[1:]]

    def namespace(self):
        """A network namespace, as the process that holds it."""
        p = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        self.cleanups.append(lambda: (p.kill(), p.wait()))
        self.until(lambda: os.readlink(f"/proc/{p.pid}/ns/net") != os.readlink("/proc/self/ns/net"), "a namespace")
        return p.pid

    def helper(self, *argv):
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.cleanups.append(lambda: (p.kill(), p.wait()))
        return p

    def routed(self, pid):
        r = subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "route"], stdout=subprocess.PIPE, text=True, check=False)
        words = r.stdout.split()
        return words[words.index("default") + 2] if "default" in words else None

    def add_slirp(self):
        if not shutil.which("slirp4netns"):
            raise RuntimeError("it is not installed")
        pid = self.namespace()
        self.helper("slirp4netns", "--configure", "--mtu=65520", str(pid), "tap0")
        self.until(lambda: self.routed(pid), "slirp4netns")
        self.ways["slirp4netns"] = lambda *a: ["nsenter", "-t", str(pid), "-n", self.net, a[0], "10.0.2.2", self.port, *a[1:]]

    def add_pasta(self):
        if not shutil.which("pasta"):
            raise RuntimeError("it is not installed")
        pid = self.namespace()
        p = self.helper("pasta", "--config-net", "--foreground", "--netns-only", "--runas", "0", "--netns",
                        f"/proc/{pid}/ns/net")
        self.until(lambda: self.routed(pid) or p.poll() is not None, "pasta")
        if p.poll() is not None:
            raise RuntimeError("as root it does not enter a namespace here")
        to = self.routed(pid)
        self.ways["pasta"] = lambda *a: ["nsenter", "-t", str(pid), "-n", self.net, a[0], to, self.port, *a[1:]]

    def add_srt(self, where):
        places = [os.path.join(p, "node_modules/.bin/srt") for p in ([where] if where else [])]
        srt = next((p for p in places if os.path.exists(p)), shutil.which("srt"))
        if not srt:
            raise RuntimeError("it is not installed (--srt DIR)")
        settings = os.path.join(self.dir, "srt.json")
        with open(settings, "w") as f:
            json.dump({"network": {"allowedDomains": ["localhost"], "deniedDomains": [], "allowLocalBinding": True},
                       "filesystem": {"denyRead": [], "allowWrite": ["/tmp"], "denyWrite": []}}, f)
        self.ways["srt"] = lambda *a: [srt, "--settings", settings, "-c",
                                       " ".join([self.net, a[0], "localhost", self.port, *a[1:], "via-proxy"])]

    def once(self, way, *args):
        r = subprocess.run(self.ways[way](*args), env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        lines = [l for l in r.stdout.splitlines() if "\t" in l]
        if r.returncode or not lines:
            raise RuntimeError(f"{way}: {r.stderr.strip()[-100:] or 'nothing came of it'}")
        return run.Samples().read("\n".join(lines))

    def race(self, ways, rounds, *args):
        """name -> way -> milliseconds; in each round all of them, in random order"""
        found, ways = {}, list(ways)
        for _ in range(rounds):
            for way in random.sample(ways, len(ways)):
                try:
                    samples = self.once(way, *args)
                except (RuntimeError, subprocess.SubprocessError) as e:
                    if way in ("direct", "den"):
                        raise
                    ways.remove(way)
                    for s in found.values():
                        s.pop(way, None)
                    self.notes.append(f"{' '.join(args)}: {str(e)[:120]}")
                    continue
                for name, values in samples.items():
                    found.setdefault(name, run.Samples()).setdefault(way, []).extend(values)
        return found

    def measure(self):
        ways = list(self.ways)
        r = {**self.race(ways, self.rounds, "connect", "20"), **self.race(ways, self.rounds, "request", "100")}
        r["transfer"] = {}
        for what in ("down", "up"):
            for label, size in SIZES:
                for streams in STREAMS:
                    if self.quick and size > SLOW:
                        continue
                    each = max(64, size // streams)  # the same bytes in all
                    some = [w for w in ways if size <= SLOW or w in ("direct", "den")]
                    rounds = self.rounds if size < SLOW else max(3, self.rounds // 3)
                    run.say(what, label, "over", streams)
                    found = self.race(some, rounds, what, str(each), str(streams), "3" if size < SLOW else "1")
                    r["transfer"][f"{what}\t{label}\t{streams}"] = found[what]
        return r


def us(s, way):
    return f"{s.median(way) * 1000:,.0f} ({s.p95(way) * 1000:,.0f})" if s.get(way) else "-"


def rate(s, way, size):
    return f"{size / MIB / (s.median(way) / 1000):,.0f}" if s.get(way) else "-"


def slower(s, a, b):
    return s.median(a) / s.median(b)


def big(r):
    """How much of a direct connection's throughput den has where bytes count: 64 MiB and more."""
    return [1 / slower(s, "den", "direct") for k, s in r["transfer"].items() if k.split("\t")[1] in ("64 MiB", "1 GiB")]


def goals(r):
    rows = [("throughput of a direct connection (worst of 64 MiB and more)", min(big(r)), 0.5, True),
            ("connect against direct", slower(r["connect"], "den", "direct"), 2, False)]
    if r["connect"].get("srt"):
        rows += [("connect, times faster than srt", slower(r["connect"], "srt", "den"), 5, True)]
        s = r["transfer"]["down\t64 MiB\t1"]
        if s.get("srt") and s.get("den"):
            rows += [("64 MiB down, times faster than srt", slower(s, "srt", "den"), 5, True)]
    return [(what, f"{v:.2f}x", f"{'at least' if more else 'at most'} {limit}x",
             "met" if (v >= limit if more else v <= limit) else "**not met**") for what, v, limit, more in rows]


def markdown(r):
    ways = r["ways"]
    out = [BEGIN, "", "## The gate", "", f"Measured on {r['machine']}.", "",
           "A server on the host's loopback; the client is in a box, behind another's network, or beside the server (direct). "
           "Median (95th percentile).", "", "### What was promised of it", ""]
    out += run.table(["promise", "measured", "limit", ""], goals(r))
    out += ["", "### Connections, µs", ""]
    out += run.table(["", *ways], [("connect()", *[us(r["connect"], w) for w in ways]),
                                   ("connect() and the first byte back", *[us(r["byte"], w) for w in ways]),
                                   ("64 bytes there and back, on a connection", *[us(r["request"], w) for w in ways])])
    out += ["", "### Bytes, MiB/s; all streams together move the size", ""]
    rows = []
    for key, s in r["transfer"].items():
        what, label, streams = key.split("\t")
        size = max(dict(SIZES)[label], 64 * int(streams))
        rows.append((f"{what} {label}, {streams} stream{'s' if streams != '1' else ''}", *[rate(s, w, size) for w in ways],
                     f"{1 / slower(s, 'den', 'direct'):.2f}"))
    out += run.table(["", *ways, "den/direct"], rows)
    out += [""] + [f"- {n}" for n in r["notes"]] + ([""] if r["notes"] else [])
    return "\n".join(out + [END])


def main():
    args = run.options(__doc__, srt="directory where npm installed sandbox-runtime")
    b = Gate(args)
    try:
        r = {**b.measure(), "machine": run.machine(), "notes": b.notes, "ways": list(b.ways)}
    finally:
        b.clean()
    print(markdown(r))
    if not args.quick:
        run.write_part(args.out, BEGIN, END, markdown(r))
    bad = [g for g in goals(r) if g[3] != "met"]
    run.say(f"{len(bad)} of {len(goals(r))} promises of the gate not met" if bad else "all promises met")


if __name__ == "__main__":
    main()
