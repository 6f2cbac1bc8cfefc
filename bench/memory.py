#!/usr/bin/env python3
"""Measures programs that are put away and brought back: full checkpoints, rollbacks, forks, pauses.

    bench/memory.py --build build [--quick] [--rounds N] [--out docs] [--state DIR] [--only WALL,...] [--raw FILE]

A program with a heap of 10, 100 and 500 MB (each word another, so nothing is saved by compressing) runs in a box behind
each wall; beside it, in turns, the same program under CRIU and runsc used by hand and in a podman container. Writes the
part of docs/performance.md between its two markers. Needs root. Cleans up after itself.

--quick: a few rounds, no 500 MB, nothing written. --only: of container, gvisor. --raw: all samples go to FILE, and walls
that --only leaves out are taken from it.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import run

BEGIN = "<!-- measured: written by bench/memory.py, do not edit -->"
END = "<!-- end of what was measured of memory -->"
WALLS = ["container", "gvisor"]
RUNTIME = os.environ.get("DEN_RUNTIME", "/usr/local/lib/den/runtime")
HELP = "the longest that the program stood still, as it saw it"
DEN_ROWS = [("create", "create, until the box runs"), ("exec", "exec `true`"), ("checkpoint", "checkpoint --full"),
            ("frozen", "... frozen, as den says"), ("gap", "... " + HELP),
            ("rollback", "rollback to it, until it runs"), ("pause", "pause --disk"), ("resume", "resume"),
            ("fork 1", "fork --full of the running box, until the fork runs"), ("fork 10", "10 by one command, each"),
            ("fork 100", "100 by one command, each"), ("fork packed", "fork of a checkpoint that is compressed by now")]
GOALS = [("checkpoint of 100 MB: frozen at most", 100, "frozen", 50),
         ("resume of 100 MB: at most", 100, "resume", 100), ("fork of 100 MB: at most", 100, "fork 1", 100)]
WITHIN = 1.1  # of runsc by hand


def path_of(name):
    return shutil.which(name, path=f"{RUNTIME}/bin:{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def criu(directory):
    """den's own CRIU as a program that anybody can start, in that directory; None: it is not there."""
    if not os.path.exists(RUNTIME + "/criu/criu"):
        return None
    path = directory + "/criu"
    if not os.path.exists(path):
        os.makedirs(directory, exist_ok=True)
        with open(path, "w") as f:
            f.write(f'#!/bin/sh\nexec {RUNTIME}/criu/ld.so --inhibit-cache --library-path {RUNTIME}/criu/lib '
                    f'{RUNTIME}/criu/criu --no-default-config "$@"\n')
        os.chmod(path, 0o755)
    return path


class Rival:
    """One who does the same by hand. up() starts the program, save() and load() are timed."""
    name = wall = ""

    def __init__(self, bench, size):
        self.b, self.size = bench, size
        self.dir = os.path.join(bench.dir, f"{self.name.split()[0]}-{size}")
        os.makedirs(self.dir + "/images", exist_ok=True)
        self.images = 0

    def new_images(self):
        self.images += 1
        path = f"{self.dir}/images/{self.images}"
        shutil.rmtree(f"{self.dir}/images/{self.images - 2}", ignore_errors=True)
        os.makedirs(path)
        return path

    def argv(self):
        return ["all", f"heap={self.size}", "clock"]


class Criu(Rival):
    name, wall = "CRIU by hand", "container"
    FLAGS = ["--tcp-established", "--file-locks", "--ext-unix-sk", "--shell-job", "--manage-cgroups=ignore",
             "--empty-ns", "net"]

    def up(self):
        out = self.dir + "/said"
        open(out, "w").close()
        self.top = subprocess.Popen(
            ["unshare", "-pf", "-n", "-i", "sh", "-c",
             f"ip link set lo up; cd /; HOME={self.dir} exec setsid {self.b.memory} {' '.join(self.argv())} >{out} 2>&1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.b.env)
        self.b.until(lambda: "ready" in open(out).read(), self.name)
        self.pid = int(open(f"/proc/{self.top.pid}/task/{self.top.pid}/children").read().split()[0])
        self.checkpointed = None

    def ask(self, *words):
        return self.b.run("nsenter", "-t", str(self.pid), "-n", self.b.memory, "ask", *words).stdout

    def save(self):
        self.checkpointed = self.new_images()
        self.b.run(criu(self.b.dir + "/bin"), "dump", "-t", str(self.pid), "-D", self.checkpointed, "-o", "log", "--leave-running",
                   *self.FLAGS)

    def end(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.b.until(lambda: not os.path.exists(f"/proc/{self.pid}"), "end")
        if self.top:
            self.top.wait()
            self.top = None

    def load(self):
        pidfile = self.checkpointed + "/pid"
        if os.path.exists(pidfile):
            os.unlink(pidfile)
        self.b.run(criu(self.b.dir + "/bin"), "restore", "-d", "-D", self.checkpointed, "-o", "restore.log", "--pidfile", pidfile,
                   *self.FLAGS)
        self.pid = int(open(pidfile).read())

    down = end


class Runsc(Rival):
    name, wall = "runsc by hand", "gvisor"

    def runsc(self, *argv, **kw):
        return self.b.run(path_of("runsc"), f"--root={self.dir}/root", "--platform=systrap", "--network=none",
                          "--ignore-cgroups", *argv, **kw)

    def up(self):
        top = self.dir + "/bundle"
        os.makedirs(top + "/rootfs/tmp", exist_ok=True)
        for d in ("proc", "dev", "sys"):
            os.makedirs(f"{top}/rootfs/{d}", exist_ok=True)
        shutil.copy(self.b.memory, top + "/rootfs/memory")
        conf = {"ociVersion": "1.0.0", "root": {"path": "rootfs"}, "hostname": "bench",
                "process": {"args": ["/memory", *self.argv()], "cwd": "/", "env": ["HOME=/tmp"], "user": {"uid": 0, "gid": 0}},
                "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                           {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}],
                "linux": {"namespaces": [{"type": t} for t in ("pid", "network", "ipc", "uts", "mount")]}}
        with open(top + "/config.json", "w") as f:
            json.dump(conf, f)
        self.serial = 0
        self.id = "bench-0"
        self.runsc("run", "-detach", "-bundle", top, self.id)
        self.b.until(lambda: self.answers(), self.name)

    def answers(self):
        return self.runsc("exec", self.id, "/memory", "ask", "count", check=False).returncode == 0

    def ask(self, *words):
        return self.runsc("exec", self.id, "/memory", "ask", *words).stdout

    def save(self):
        self.checkpointed = self.new_images()
        self.runsc("checkpoint", "--image-path", self.checkpointed, "--leave-running", self.id)

    def end(self):
        self.runsc("kill", self.id, "KILL", check=False)
        self.runsc("delete", "-force", self.id, check=False)

    def load(self):
        self.serial += 1
        self.id = f"bench-{self.serial}"
        self.runsc("restore", "-detach", "--image-path", self.checkpointed, "-bundle", self.dir + "/bundle", self.id)

    down = end


class Podman(Rival):
    name, wall = "podman container checkpoint", "container"

    def podman(self, *argv, **kw):
        # runc asks for `criu` by name: the one of den's runtime is found first
        return self.b.in_ns("env", f"PATH={self.b.dir}/bin:{os.environ.get('PATH', '')}", *self.b.podman_argv(*argv), **kw)

    def up(self):
        top = self.dir + "/rootfs"
        for d in ("tmp", "proc", "dev", "sys", "etc", "run"):
            os.makedirs(f"{top}/{d}", exist_ok=True)
        shutil.copy(self.b.memory, top + "/memory")
        self.id = f"den-bench-{self.size}"
        self.podman("--runtime", path_of("runc"), "run", "-d", "--name", self.id, "--network", "none", "--ulimit",
                    "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "--env", "HOME=/tmp", "--rootfs", top, "/memory",
                    *self.argv())
        self.b.until(lambda: self.podman("exec", self.id, "/memory", "ask", "count", check=False).returncode == 0, self.name)

    def ask(self, *words):
        return self.podman("exec", self.id, "/memory", "ask", *words).stdout

    def save(self):
        self.podman("container", "checkpoint", "--keep", "--leave-running", self.id)

    def end(self):
        self.podman("container", "checkpoint", "--keep", self.id)

    def load(self):
        self.podman("container", "restore", "--keep", self.id)

    def down(self):
        self.podman("rm", "-f", "-t", "0", self.id, check=False)


RIVALS = [Criu, Runsc, Podman]


def why_of(e):
    """What the program said, without the place where it ran."""
    lines = [l for l in str(e).split(": status ")[-1].strip().splitlines() if "log file" not in l]
    return (lines or ["no message"])[-1][-200:]


class Memory(run.Bench):
    def __init__(self, args):
        super().__init__(args)
        self.rounds = args.rounds or (3 if args.quick else 10)
        self.sizes = [10, 100] if args.quick else [10, 100, 500]
        self.memory = os.path.join(self.build, "tests", "memory", "memory")
        self.serial = 0

    def until(self, works, what, seconds=60):
        end = time.monotonic() + seconds
        while not works():
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: not ready after {seconds} s")
            time.sleep(0.02)

    def timed(self, samples, name, fn, *argv, each=1):
        began = time.monotonic_ns()
        r = fn(*argv)
        samples.setdefault(name, []).append((time.monotonic_ns() - began) / 1e6 / each)
        return r

    def ask(self, box, *words):
        return self.run(self.den, "exec", box, "--", "/memory/memory", "ask", *words).stdout

    def gap(self, samples, ask):
        samples.setdefault("gap", []).append(float(ask("gap", "clock").split()[-1]))

    def box(self, wall, size):
        box = self.run(self.den, "create", "--wall", wall, "--history", "manual", "--memory", f"{size * 2 + 256}m", "--mount",
                       os.path.dirname(self.memory) + ":/memory:ro").stdout.strip()
        self.run(self.den, "exec", "--detach", box, "--", "/memory/memory", "all", f"heap={size}", "clock")
        self.until(lambda: self.run(self.den, "exec", box, "--", "/memory/memory", "ask", "count", check=False).returncode == 0,
                   f"{wall}, {size} MB")
        return box

    # ---- one round each ----

    def den_round(self, s, wall, box, size):
        throwaway = self.timed(s, "create", self.run, self.den, "create", "--wall", wall).stdout.strip()
        self.timed(s, "exec", self.run, self.den, "exec", throwaway, "true")
        self.run(self.den, "rm", "--force", throwaway)
        self.ask(box, "step")
        self.ask(box, "gap", "clock")
        r = self.timed(s, "checkpoint", self.run, self.den, "checkpoint", "--full", "--json", box)
        told = json.loads(r.stdout)
        self.gap(s, lambda *w: self.ask(box, *w))
        if told.get("frozen_us") is not None:
            s.setdefault("frozen", []).append(told["frozen_us"] / 1e3)
        self.timed(s, "rollback", self.run, self.den, "rollback", box, str(told["number"]))
        self.timed(s, "pause", self.run, self.den, "pause", "--disk", box)
        self.timed(s, "resume", self.run, self.den, "resume", box)
        self.settle()
        for n in [1, 10] if size <= 100 else [1]:
            made = self.timed(s, f"fork {n}", self.run, self.den, "fork", "--full", "--count", str(n), box, each=n).stdout.split()
            self.run(self.den, "rm", "--force", *made)
        made = self.timed(s, "fork packed", self.run, self.den, "fork", "--full", f"{box}@{told['number']}").stdout.strip()
        self.run(self.den, "rm", "--force", made)
        self.ask(box, "check")
        self.settle()
        self.run(self.den, "prune", "--all", box, check=False)

    def settle(self):
        """Compressing, syncing and freeing go on in the background: not while the next one is measured."""
        self.run("sync", "-f", self.state)
        time.sleep(0.2 if self.quick else 1)

    def rival_round(self, s, rival):
        rival.ask("gap", "clock")
        self.timed(s, "checkpoint", rival.save)
        self.gap(s, rival.ask)
        rival.end()
        self.timed(s, "rollback", rival.load)
        rival.ask("check")
        time.sleep(0.2 if self.quick else 1)

    def try_round(self, s, rival, size):
        """One that fails once is measured no more; what it did until then counts."""
        try:
            self.rival_round(s, rival)
            return True
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as e:
            s.clear()
            self.note(f"{rival.name}, {size} MB: failed after some rounds: `{why_of(e)}`")
            rival.down()
            self.cleanups.remove(rival.down)
            return False

    def rivals(self, wall, size):
        out = []
        for kind in RIVALS:
            if kind.wall != wall:
                continue
            needs = {"Criu": "criu", "Runsc": "runsc", "Podman": "podman"}[kind.__name__]
            if not (criu(self.dir + "/bin") if needs == "criu" else path_of(needs)):
                self.note(f"{kind.name}: {needs} is not installed.")
                continue
            rival = kind(self, size)
            try:
                rival.up()
                self.cleanups.append(rival.down)
                self.rival_round(run.Samples(), rival)
                out.append(rival)
            except (RuntimeError, OSError, IndexError, subprocess.TimeoutExpired) as e:
                self.note(f"{kind.name} does not work here: `{why_of(e)}`")
                rival.down()
        return out

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)
            run.say(text)

    # ---- all ----

    def measure(self, wall):
        """{size: {who: samples}}, or the reason why there is none"""
        out = {}
        if wall == "container":
            self.ns = self.legacy_cgroup_ns()
        for size in self.sizes:
            run.say(f"{wall}: {size} MB")
            box = self.box(wall, size)
            probe = self.run(self.den, "checkpoint", "--full", box, check=False)
            if probe.returncode:
                self.run(self.den, "rm", "--force", box)
                return {"why": probe.stderr.strip().splitlines()[0]}
            rivals = self.rivals(wall, size)
            out[size] = {who: run.Samples() for who in ["den"] + [r.name for r in rivals]}
            for r in range(-1, self.rounds if size < 500 else max(2, self.rounds // 2)):
                for who in random.sample(["den"] + rivals, 1 + len(rivals)):
                    s = run.Samples()
                    if who == "den":
                        self.den_round(s, wall, box, size)
                    elif not self.try_round(s, who, size):
                        rivals.remove(who)
                    if r >= 0:
                        for k, v in s.items():
                            out[size][who if who == "den" else who.name].setdefault(k, []).extend(v)
            if size == 10 and not self.quick and wall == "container":
                self.hundred(out[size]["den"], box)
            out[size]["den"]["paused MB"] = [self.paused(box)]
            self.run(self.den, "rm", "--force", box)
            for rival in rivals:
                rival.down()
                self.cleanups.remove(rival.down)
        return out

    def hundred(self, s, box):
        made = self.timed(s, "fork 100", lambda: self.run(self.den, "fork", "--full", "--count", "100", box, timeout=900),
                          each=100).stdout.split()
        for i in range(0, len(made), 20):
            self.run(self.den, "rm", "--force", *made[i:i + 20])

    def paused(self, box):
        """What processes of a paused box take of memory, in MB."""
        self.run(self.den, "pause", "--disk", box)
        time.sleep(1)
        info = json.loads(self.run(self.den, "inspect", "--json", box).stdout)
        total = 0
        for who in ("init_pid", "keeper_pid"):
            pid = info.get(who)
            if who == "init_pid" and pid and os.path.exists(f"/proc/{pid}"):
                total += sum(run.smaps(pid).values()) / 1024
        return total


# ---- what it says ----

def ms(v):
    return "-" if v is None else f"{v:.0f}" if v >= 100 else f"{v:.1f}"


def both(s, name):
    return f"{ms(s.median(name))} / {ms(s.p95(name))}" if s.get(name) else "-"


def goals(r):
    out = []
    c = r["walls"].get("container") or {}
    for text, size, row, limit in GOALS:
        s = c.get(size, {}).get("den")
        out.append(run.verdict("container: " + text, s.median(row) if s else None, limit, " ms"))
    s = c.get(100, {}).get("den")
    out.append(run.verdict("a paused box: at most", s["paused MB"][0] if s and s.get("paused MB") else None, 0, " MB"))
    g = (r["walls"].get("gvisor") or {}).get(100, {})
    # a restore by hand ends nothing and takes no files back: what den does likewise is the resume
    for mine, theirs, text in (("checkpoint", "checkpoint", "checkpoint of 100 MB against runsc by hand"),
                               ("resume", "rollback", "resume of 100 MB against restore by runsc by hand")):
        a, b = g["den"].median(mine) if g.get("den") else None, g[Runsc.name].median(theirs) if g.get(Runsc.name) else None
        out.append(run.verdict(f"gvisor: {text}: at most", a / b if a and b else None, WITHIN, "x"))
    return out


def wall_text(wall, sizes):
    if "why" in sizes:
        return [f"### {wall}", "", f"Not measured here: {sizes['why']}", ""]
    n = max(len(w["den"]["checkpoint"]) for w in sizes.values())
    out = [f"### Behind the {wall} wall", "", f"Median / 95th percentile in ms of up to {n} rounds; each is one command, with "
           "the start of its process.", ""]
    out += run.table(["den", *(f"{s} MB" for s in sizes)],
                     [(text, *(both(w["den"], key) for w in sizes.values())) for key, text in DEN_ROWS
                      if any(w["den"].get(key) for w in sizes.values())])
    rows = []
    for size, who in sizes.items():
        for name, s in who.items():
            d = who["den"]
            ratio = [f" ({s.median(k) / d.median(k):.2f})" if name != "den" and d.median(k) and s.median(k) else ""
                     for k in ("checkpoint", "gap", "rollback")]
            rows.append((f"{size} MB, {name}", *(both(s, k) + q for k, q in zip(("checkpoint", "gap", "rollback"), ratio))))
    return out + ["The same program, in turns; in brackets: median against den's. den's rollback also ends what ran, keeps the "
                  "present files as a checkpoint, and takes the files back to the same instant; by hand it is the restore alone.",
                  ""] + run.table(["", "checkpoint, it runs on", "stood still, as it saw it", "back"], rows)


def markdown(r):
    out = [BEGIN, "", "## Programs on disk", "", f"Measured on {r['machine']}.", "", "### What was promised of it", ""]
    out += run.table(["promise", "measured", "limit", ""], goals(r))
    for wall in WALLS:
        if r["walls"].get(wall):
            out += wall_text(wall, r["walls"][wall])
    out += [f"- {n}" for n in r["notes"]] + [""] if r["notes"] else []
    return "\n".join(out + [END])


def load_raw(path):
    if not path or not os.path.exists(path):
        return {}
    with open(path) as f:
        walls = json.load(f)
    return {wall: sizes if "why" in sizes else {int(size): {who: run.Samples(s) for who, s in all_.items()}
                                                for size, all_ in sizes.items()} for wall, sizes in walls.items()}


def main():
    args = run.options(__doc__, only="some of " + ", ".join(WALLS), raw="file of samples, read and written")
    only = args.only.split(",") if args.only else WALLS
    if set(only) - set(WALLS):
        sys.exit(f"bench: --only takes {', '.join(WALLS)}")
    b = Memory(args)
    r = {"walls": load_raw(args.raw), "machine": run.machine(), "notes": b.notes}
    try:
        for wall in only:
            probe = b.run(b.den, "create", "--wall", wall, check=False)
            if probe.returncode:
                r["walls"][wall] = {"why": probe.stderr.strip().splitlines()[0]}
                continue
            b.run(b.den, "rm", "--force", probe.stdout.strip())
            r["walls"][wall] = b.measure(wall)
            if args.raw:
                with open(args.raw, "w") as f:
                    json.dump(r["walls"], f)
    finally:
        b.clean()
    print(markdown(r))
    if not args.quick and all(w in r["walls"] for w in WALLS):
        run.write_part(args.out, BEGIN, END, markdown(r))
    bad = [g for g in goals(r) if g[3] != "met"]
    run.say(f"{len(bad)} of {len(goals(r))} promises of memory not met" if bad else "all promises met")


if __name__ == "__main__":
    main()
