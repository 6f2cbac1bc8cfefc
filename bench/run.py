#!/usr/bin/env python3
"""Measures den against the kernel's own floor and against what else is on this machine.

    bench/run.py --build build [--quick] [--rounds N] [--out docs] [--state DIR]

Writes docs/performance.svg and the part of docs/performance.md between its two markers; what people
wrote around them stays. Everything that is compared runs interleaved, in one run: medians of different
runs say nothing about each other. Needs root, as den's id-mapped walls do. Cleans up after itself.

--quick: fewer rounds, no 1,000 boxes, nothing written.
"""
import argparse
import glob
import json
import os
import platform
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BEGIN = "<!-- measured: written by bench/run.py, do not edit -->"
END = "<!-- end of what was measured -->"
ID_BASE = 1879048192  # of the other runtimes' containers, and of bench/floor.c
BUSYBOX = ["/bin/busybox", "/usr/bin/busybox"]


def say(*text):
    print("bench:", *text, file=sys.stderr, flush=True)


class Samples(dict):
    """name -> milliseconds"""

    def read(self, text):
        for line in text.splitlines():
            name, ns = line.split("\t")
            self.setdefault(name, []).append(int(ns) / 1e6)
        return self

    def median(self, name):
        return statistics.median(self[name]) if self.get(name) else None

    def p95(self, name):
        v = sorted(self[name])
        return v[min(len(v) - 1, int(len(v) * 0.95))]


def await_end(p, timeout):
    """subprocess looks every 50 ms whether it has ended, which is longer than much of what is measured here."""
    fd = os.pidfd_open(p.pid)
    try:
        if not select.select([fd], [], [], timeout)[0]:
            p.kill()
            p.wait()
            raise subprocess.TimeoutExpired(p.args, timeout)
    finally:
        os.close(fd)
    p.wait()


class Bench:
    def __init__(self, args):
        self.build = os.path.abspath(args.build)
        self.rounds = args.rounds or (10 if args.quick else 40)
        self.quick = args.quick
        self.den = os.path.join(self.build, "den")
        self.tool = lambda name: os.path.join(self.build, "bench", "bench-" + name)
        # On the file system that den's boxes would use, not on a tmpfs that flatters it.
        base = args.state or ("/var/lib" if os.access("/var/lib", os.W_OK) else None)
        self.dir = tempfile.mkdtemp(prefix="den-bench.", dir=base)
        os.chmod(self.dir, 0o755)
        self.state = os.path.join(self.dir, "state")
        os.mkdir(self.state, 0o700)
        self.env = dict(os.environ, DEN_STATE=self.state, DEN_EXE=self.den)
        self.notes = []  # why a contestant is missing
        self.cleanups = []
        self.ns = "-"

    # ---- running things ----

    def run(self, *argv, check=True, timeout=300):
        """What it says goes through files: something that it leaves running may keep them open."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            r = subprocess.Popen(argv, env=self.env, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
            await_end(r, timeout)
            for name, f in (("stdout", out), ("stderr", err)):
                f.seek(0)
                setattr(r, name, f.read())
        if check and r.returncode:
            raise RuntimeError(f"{' '.join(argv)}: status {r.returncode}: {r.stderr.strip()[-400:]}")
        return r

    def drive(self, contestants, rounds, warmup=3):
        plan = "".join("\t".join([name, ns, *argv]) + "\n" for name, ns, argv in contestants)
        r = subprocess.run([self.tool("drive"), str(rounds), str(warmup)], input=plan, env=self.env,
                           stdout=subprocess.PIPE, text=True, check=True)
        return Samples().read(r.stdout)

    def batch(self, jobs, first, count, *argv):
        r = self.run(self.tool("drive"), "batch", str(jobs), str(first), str(count), *argv)
        return Samples().read(r.stdout)

    def clean(self):
        for fn in reversed(self.cleanups):
            try:
                fn()
            except Exception as e:  # the rest is to be cleaned up as well
                say("clean up:", e)
        self.remove_boxes()
        self.run(self.den, "gc", check=False)
        for mount in sorted(mounts_below(self.dir), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
        if os.path.exists(self.dir):
            say("could not be removed:", self.dir)

    def remove_boxes(self):
        r = self.run(self.den, "ls", "--json", check=False)
        for line in r.stdout.splitlines():
            try:
                rows = json.loads(line)
            except ValueError:
                continue
            for row in rows if isinstance(rows, list) else [rows]:
                self.run(self.den, "rm", "--force", row["id"], check=False)

    # ---- who takes part ----

    def template(self):
        return max(glob.glob(self.state + "/templates/host-*"), key=os.path.getmtime)

    def upper_in_memory(self):
        """A throwaway box's changes are on disk if its overlay is a volatile one."""
        return "volatile" not in self.run(self.den, "run", "cat", "/proc/self/mountinfo").stdout

    def floors(self):
        work = os.path.join(self.dir, "floor")
        os.makedirs(work, exist_ok=True)
        return [("floor, changes on disk", "-", [self.tool("floor"), self.template(), work]),
                ("floor, changes in memory", "-", [self.tool("floor"), "-m", self.template(), work])]

    def bubblewrap(self):
        if not shutil.which("bwrap"):
            self.notes.append("bubblewrap is not installed.")
            return []
        return [("bubblewrap", "-", [shutil.which("bwrap"), "--unshare-all", "--ro-bind", "/", "/",
                                     "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs",
                                     "/run", "true"])]

    def bundle(self):
        """A minimal OCI bundle: static busybox, namespaces and id map like den's."""
        box = next((b for b in BUSYBOX if os.path.exists(b)), None)
        if not box:
            raise RuntimeError("no busybox for a root file system (package busybox-static)")
        top = os.path.join(self.dir, "bundle")
        for d in ("bin", "proc", "dev", "sys", "tmp", "etc"):
            os.makedirs(os.path.join(top, "rootfs", d))
        shutil.copy(box, top + "/rootfs/bin/busybox")
        for name in ("true", "sleep", "sh"):
            os.symlink("busybox", f"{top}/rootfs/bin/{name}")
        for path, dirs, files in os.walk(top + "/rootfs"):
            for name in ["."] + dirs + files:
                os.lchown(os.path.join(path, name), ID_BASE, ID_BASE)
        self.run("runc", "spec", "-b", top)
        with open(top + "/config.json") as f:
            conf = json.load(f)
        conf["process"].update(terminal=False, args=["/bin/true"])
        conf["process"].pop("rlimits", None)
        conf["linux"]["namespaces"] = [{"type": t} for t in
                                       ("pid", "network", "ipc", "uts", "mount", "cgroup", "user")]
        conf["linux"]["uidMappings"] = conf["linux"]["gidMappings"] = [
            {"containerID": 0, "hostID": ID_BASE, "size": 65536}]
        for name, argv in (("bundle", ["/bin/true"]), ("sleeper", ["/bin/sleep", "100000"])):
            where = os.path.join(self.dir, name)
            os.makedirs(where, exist_ok=True)
            conf["process"]["args"] = argv
            conf["root"] = {"path": top + "/rootfs", "readonly": True}
            with open(where + "/config.json", "w") as f:
                json.dump(conf, f)
        return top

    def legacy_cgroup_ns(self):
        """crun refuses hosts with v1 controllers and a v2 tree beside them that has some too. In a
        mount namespace without that v2 tree it works; drive enters it before it starts the clock."""
        if not os.path.exists("/sys/fs/cgroup/unified/cgroup.procs"):
            return "-"
        p = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c",
                              "umount /sys/fs/cgroup/unified && echo && exec sleep 100000"],
                             stdout=subprocess.PIPE, env=self.env)
        self.cleanups.append(lambda: (p.kill(), p.wait()))
        p.stdout.read(1)
        return f"/proc/{p.pid}/ns/mnt"

    def in_ns(self, *argv, check=True):
        pid = self.ns.split("/")[2] if self.ns != "-" else None
        return self.run(*(["nsenter", "-t", pid, "-m"] if pid else []), *argv, check=check)

    def works(self, name, *argv):
        r = self.in_ns(*argv, check=False)
        if r.returncode:
            why = (r.stderr.strip().splitlines() or ["no message"])[-1]
            self.notes.append(f"{name} does not start here: `{why[:200]}`")
        return r.returncode == 0

    def oci(self):
        out = []
        try:
            self.bundle()
        except (RuntimeError, OSError) as e:
            self.notes.append(f"OCI runtimes: {e}")
            return out
        for name in ("crun", "runc"):
            exe = shutil.which(name)
            if not exe:
                self.notes.append(f"{name} is not installed.")
                continue
            argv = [exe, "--root", f"{self.dir}/{name}.root", "run", "-b", self.dir + "/bundle",
                    f"den-bench-{name}"]
            if self.works(name, *argv):
                out.append((f"{name} run", self.ns, argv))
        return out

    def podman_argv(self, *rest):
        return [shutil.which("podman"), "--root", self.dir + "/podman", "--runroot",
                self.dir + "/podman.run", "--cgroup-manager", "cgroupfs", *rest]

    def podman(self):
        if not shutil.which("podman"):
            self.notes.append("podman is not installed.")
            return []
        # The limits are the defaults, said aloud: raising them needs CAP_SYS_RESOURCE.
        limits = ["--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
        argv = self.podman_argv("run", "--rm", *limits, "--rootfs", self.dir + "/bundle/rootfs", "true")
        if not self.works("podman", *argv):
            return []
        self.podman_up = self.podman_argv("run", "-d", "--name", "den-bench", *limits, "--rootfs",
                                          self.dir + "/bundle/rootfs", "sleep", "100000")
        return [("podman run", self.ns, argv)]

    def docker(self):
        if not shutil.which("docker"):
            self.notes.append("docker is not installed.")
        else:
            r = self.run("docker", "version", check=False, timeout=20)
            self.notes.append("docker: " + ("its daemon runs, but there is no image to start without a "
                                            "download." if r.returncode == 0 else
                                            f"`{r.stderr.strip().splitlines()[-1][:160]}`"))
        return []

    # ---- what is measured ----

    def starts(self):
        self.run(self.den, "run", "true")
        self.ns = self.legacy_cgroup_ns()
        den = [("den run", "-", [self.den, "run", "true"])]
        oci = {c[0]: c for c in self.oci()}
        near = self.floors() + den + self.bubblewrap() + [c for n, c in oci.items() if n == "crun run"]
        far = den + [c for n, c in oci.items() if n != "crun run"] + self.podman() + self.docker()
        return self.two_races(near, far)

    def two_races(self, near, far):
        """What keeps the machine busy after it has ended (a runtime with threads, an engine that cleans up
        and writes to the disk) races den alone: in one race it would slow down whoever comes next."""
        out = []
        for race, rounds in ((near, self.rounds), (far, max(10, self.rounds // 3))):
            say("racing:", ", ".join(c[0] for c in race))
            out.append(self.drive(race, rounds) if len(race) > 1 else Samples())
        return out

    def execs(self):
        self.run(self.den, "create", "--name", "bench-exec")
        den = ("den exec", "-", [self.den, "exec", "bench-exec", "true"])
        near, far = [("plain vfork and exec", "-", ["/bin/true"]), den], [den]
        crun = shutil.which("crun")
        if crun and os.path.isdir(self.dir + "/sleeper"):
            root = ["--root", self.dir + "/crun.root"]
            self.cleanups.append(lambda: self.in_ns(crun, *root, "delete", "-f", "den-bench-x", check=False))
            if self.works("crun exec", crun, *root, "run", "-d", "-b", self.dir + "/sleeper", "den-bench-x"):
                far.append(("crun exec", self.ns, [crun, *root, "exec", "den-bench-x", "/bin/true"]))
        if getattr(self, "podman_up", None) and self.works("podman exec", *self.podman_up):
            self.cleanups.append(lambda: self.in_ns(*self.podman_argv("rm", "-f", "-t", "0", "den-bench"),
                                                    check=False))
            far.append(("podman exec", self.ns, self.podman_argv("exec", "den-bench", "true")))
        s = self.two_races(near, far)
        inproc = Samples().read(self.run(self.tool("inproc"), "bench-exec", str(self.rounds * 5)).stdout)
        self.run(self.den, "rm", "--force", "bench-exec")
        return s, inproc

    def many(self):
        n = 20 if self.quick else 100
        out = {}
        for jobs in (1, 20):
            run = self.batch(jobs, 0, n, self.den, "run", "true")
            make = self.batch(jobs, 0, n, self.den, "create", "--name", "many-{}")
            drop = self.batch(jobs, 0, n, self.den, "rm", "--force", "many-{}")
            out[jobs] = {"n": n, "run": run, "create": make, "rm": drop}
            say(f"{n} boxes, {jobs} at a time: run {run['all'][0] / n:.1f} ms each, "
                f"create {make['all'][0] / n:.1f}, rm {drop['all'][0] / n:.1f}")
        return out

    def box_pss(self, ref):
        """KiB of keeper and init, and of that what no other process has."""
        info = json.loads(self.run(self.den, "inspect", ref, "--json").stdout)
        info = info[0] if isinstance(info, list) else info
        return {who: smaps(info[who + "_pid"]) for who in ("keeper", "init")}

    def idle(self):
        """The first box alone, and one of 20: what programs share counts for each user in part."""
        self.run(self.den, "create", "--name", "idle-0")
        time.sleep(5)
        alone = self.box_pss("idle-0")
        self.batch(4, 1, 19, self.den, "create", "--name", "idle-{}")
        time.sleep(5)
        among = self.box_pss("idle-0")
        self.batch(4, 0, 20, self.den, "rm", "--force", "idle-{}")
        return alone, among

    def thousand(self, total=1000, step=50):
        """Boxes alive at once: time to create each, in batches, and what they take of memory."""
        out = {"batches": [], "total": total}
        before = available_kib()
        try:
            for first in range(0, total, step):
                s = self.batch(1, first, step, self.den, "create", "--name", "k-{}")
                out["batches"].append((first + step, s.median("one")))
                say(f"{first + step} boxes alive: create {s.median('one'):.1f} ms, "
                    f"{(before - available_kib()) / (first + step):.0f} KiB each")
            time.sleep(5)
            out["kib_each"] = (before - available_kib()) / total
            out["pss"] = self.box_pss("k-0")
        finally:
            made = len(out["batches"]) * step + step
            r = self.batch(4, 0, min(made, total), self.den, "rm", "--force", "k-{}")
            out["rm_ms_each"] = r["all"][0] / len(r["one"])
        return out


def smaps(pid):
    out = {}
    with open(f"/proc/{pid}/smaps_rollup") as f:
        for line in f:
            words = line.split()
            if words[0] in ("Pss:", "Private_Dirty:", "Private_Clean:", "Rss:"):
                out[words[0][:-1]] = int(words[1])
    return out


def available_kib():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("MemAvailable:"))


def mounts_below(path):
    with open("/proc/self/mountinfo") as f:
        return [m for m in (line.split()[4] for line in f) if m.startswith(path + "/")]


# ---- what it says ----

def ratio(a, b):
    return f"{a / b:.2f}" if a and b else "-"


def table(head, rows):
    out = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] + ["---:"] * (len(head) - 1)) + "|"]
    return out + ["| " + " | ".join(str(c) for c in r) + " |" for r in rows] + [""]


def verdict(promise, measured, limit, unit=""):
    if measured is None:
        return (promise, "not measured", f"{limit:g}{unit}", "not measured")
    return (promise, f"{measured:.2f}{unit}", f"{limit:.3g}{unit}", "met" if measured <= limit else "**not met**")


def growth(batches):
    slope, at0 = statistics.linear_regression([n for n, _ in batches], [ms for _, ms in batches])
    return (at0 + slope * batches[-1][0]) / at0


def race_rows(races, reference, base):
    """Rows of both races. Ratios to base, the reference's time being its own in the same race."""
    rows = []
    for race in races:
        own = race.median(reference)
        for n in sorted(race, key=race.median):
            if race is races[0] or n != reference:
                rows.append((n, f"{race.median(n):.2f}", f"{race.p95(n):.2f}",
                             ratio(race.median(n), race.median(base)) if race.get(base) else "",
                             ratio(race.median(n), own)))
    return rows


def goals(r):
    s, x, i = r["starts"][0], r["execs"][0], r["inproc"]
    den = s.median("den run")
    over = lambda name: den / s.median(name) if den and s.median(name) else None
    out = [verdict("`den run` against the floor: at most", over(r["floor"]), 1.5, "x"),
           verdict("`den run` against bubblewrap: at most", over("bubblewrap"), 1, "x"),
           verdict("`den run` against crun: at most", over("crun run"), 1 / 3, "x"),
           verdict("exec in a running box (`den exec`) against plain vfork and exec: at most",
                   x.median("den exec") / x.median("plain vfork and exec"), 3, "x"),
           verdict("the same through libden: at most",
                   i.median("exec through libden") / i.median("plain vfork and exec"), 3, "x")]
    alone, among = ({"pss": sum(p["Pss"] for p in m.values()) / 1024} for m in r["idle"])
    out.append(verdict("an idle box, the only one: at most", alone["pss"], 1.5, " MiB"))
    out.append(verdict("an idle box, one of 20: at most", among["pss"], 1.5, " MiB"))
    if r.get("thousand"):
        out.append(verdict("creating the last of 1,000 boxes against the first (straight line through all): at most",
                           growth(r["thousand"]["batches"]), 1.2, "x"))
    return out


def markdown(r):
    i = r["inproc"]
    out = [BEGIN, "", f"Measured on {r['machine']}.", "",
           "Milliseconds. Every round ran each of them once, in random order; ratios are of medians of the "
           "same race. runc, podman and the others' exec raced den alone, since they keep the machine busy "
           "after they have ended.", "", "### What was promised", ""]
    out += table(["promise", "measured", "limit", ""], goals(r))
    out += ["### A new box, one program, all gone again", "", "![](performance.svg)", ""]
    out += table(["", "median", "p95", "to the floor", "to den run"],
                 race_rows(r["starts"], "den run", r["floor"]))
    out += [f"The floor that fits is \"{r['floor']}\": that is where a throwaway box of this den has its changes.",
            ""]
    out += [f"- {n}" for n in r["notes"]] + [""] if r["notes"] else []
    out += ["### One more program in a running box", ""]
    out += table(["", "median", "p95", "to plain vfork and exec", "to den exec"],
                 race_rows(r["execs"], "den exec", "plain vfork and exec") +
                 [("exec through libden, one process", f"{i.median('exec through libden'):.2f}",
                   f"{i.p95('exec through libden'):.2f}",
                   ratio(i.median("exec through libden"), i.median("plain vfork and exec")), "")])
    out += ["### Many", ""]
    rows = []
    for jobs, m in r["many"].items():
        for what in ("run", "create", "rm"):
            rows.append((f"{what}, {jobs} at a time", m["n"], f"{m[what]['all'][0] / m['n']:.2f}",
                         f"{m[what].median('one'):.2f}", f"{m[what].p95('one'):.2f}"))
    out += table(["", "boxes", "whole time / boxes", "median of one", "p95 of one"], rows)
    out += ["### An idle box", "", "KiB, 5 s after the last box was made: proportional share, and what no other "
            "process has.", ""]
    rows = []
    for label, m in zip(("the only box", "one of 20"), r["idle"]):
        rows.append((label, *(f"{m[w]['Pss']} ({m[w]['Private_Dirty'] + m[w]['Private_Clean']})"
                              for w in ("keeper", "init")), sum(m[w]["Pss"] for w in m)))
    if r.get("thousand"):
        m = r["thousand"]["pss"]
        rows.append(("one of 1,000", *(f"{m[w]['Pss']} ({m[w]['Private_Dirty'] + m[w]['Private_Clean']})"
                                       for w in ("keeper", "init")), sum(m[w]["Pss"] for w in m)))
    out += table(["", "keeper", "init", "both"], rows)
    if r.get("thousand"):
        t = r["thousand"]
        out += ["### 1,000 boxes alive at once", "",
                f"All memory they take, the kernel's included: {t['kib_each']:.0f} KiB each. Removing them, 4 at a "
                f"time: {t['rm_ms_each']:.1f} ms each.", ""]
        out += table(["boxes alive", "create, median of 50"], [(n, f"{ms:.2f}") for n, ms in t["batches"]])
    return "\n".join(out + [END])


def svg(r):
    s = r["starts"][0]
    names = sorted(s, key=s.median)
    left, width, row = 190, 430, 26
    high = max(s.p95(n) for n in names)
    lines, y = [], 40
    for n in names:
        med, p95 = s.median(n), s.p95(n)
        w, e = width * med / high, width * p95 / high
        color = "#2563eb" if n == "den run" else "#94a3b8" if n.startswith("floor") else "#cbd5e1"
        lines += [f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{n}</text>',
                  f'<rect x="{left}" y="{y}" width="{w:.1f}" height="18" fill="{color}"/>',
                  f'<line x1="{left + w:.1f}" y1="{y + 9}" x2="{left + e:.1f}" y2="{y + 9}" stroke="#64748b"/>',
                  f'<text x="{left + e + 6:.1f}" y="{y + 13}">{med:.1f}</text>']
        y += row
    title = "New box, run true, all gone: median milliseconds (line: to the 95th percentile)"
    parts = [f'<text x="10" y="22" font-weight="bold">{title}</text>'] + lines
    if r.get("thousand"):
        b = r["thousand"]["batches"]
        y += 34
        parts.append(f'<text x="10" y="{y}" font-weight="bold">Create, by how many boxes are alive: '
                     "median milliseconds</text>")
        y += 14
        top, h = y, 110
        hi = max(ms for _, ms in b) * 1.1
        pts = " ".join(f"{left + width * n / b[-1][0]:.1f},{top + h - h * ms / hi:.1f}" for n, ms in b)
        parts += [f'<rect x="{left}" y="{top}" width="{width}" height="{h}" fill="none" stroke="#cbd5e1"/>',
                  f'<polyline points="{pts}" fill="none" stroke="#2563eb" stroke-width="2"/>',
                  f'<text x="{left - 8}" y="{top + 10}" text-anchor="end">{hi:.0f}</text>',
                  f'<text x="{left - 8}" y="{top + h}" text-anchor="end">0</text>',
                  f'<text x="{left + width}" y="{top + h + 16}" text-anchor="end">{b[-1][0]} boxes</text>']
        y = top + h + 20
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" height="{y + 12}" '
            'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(parts) + "\n</svg>\n")


def write_part(out, begin, end, part):
    """Replaces what is between the markers, with them; what people wrote around stays."""
    path = os.path.join(out, "performance.md")
    try:
        with open(path) as f:
            text = f.read()
    except FileNotFoundError:
        text = f"# Performance\n\n{begin}\n{end}\n"
    if begin not in text or end not in text:
        sys.exit(f"bench: {path} has lost its markers: '{begin}' and '{end}'")
    with open(path, "w") as f:
        f.write(text[:text.index(begin)] + part + text[text.index(end) + len(end):])


def write_docs(out, r):
    write_part(out, BEGIN, END, markdown(r))
    with open(os.path.join(out, "performance.svg"), "w") as f:
        f.write(svg(r))


def options(doc, **extra):
    """What every program here is told; extra: name -> (help)."""
    p = argparse.ArgumentParser(description=doc.splitlines()[0])
    p.add_argument("--build", default="build")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--rounds", type=int)
    p.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs"))
    p.add_argument("--state", help="directory to make the state directory in (default: /var/lib)")
    for name, text in extra.items():
        p.add_argument("--" + name, help=text)
    args = p.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench: needs root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return args


def machine():
    with open("/proc/cpuinfo") as f:
        cpu = next((l.split(":")[1].strip() for l in f if l.startswith("model name")), platform.machine())
    with open("/etc/os-release") as f:
        system = next(l.split("=")[1].strip().strip('"') for l in f if l.startswith("PRETTY_NAME"))
    load = os.getloadavg()
    return (f"{system}, Linux {platform.release()}, {os.cpu_count()} processors ({cpu}), load average "
            f"{load[0]:.1f} when it began")


def main():
    args = options(__doc__)
    b = Bench(args)
    r = {"machine": machine(), "notes": b.notes}
    try:
        r["starts"] = b.starts()
        r["floor"] = f"floor, changes {'in memory' if b.upper_in_memory() else 'on disk'}"
        r["execs"], r["inproc"] = b.execs()
        r["many"] = b.many()
        r["idle"] = b.idle()
        if not args.quick:
            r["thousand"] = b.thousand()
    finally:
        b.clean()
    if not args.quick:
        write_docs(args.out, r)
    print(markdown(r))
    bad = [g for g in goals(r) if g[3] != "met"]
    say(f"{len(bad)} of {len(goals(r))} promises not met" if bad else "all promises met")


if __name__ == "__main__":
    main()
