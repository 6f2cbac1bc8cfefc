"""Reads and writes in a box against the host's own file system and other runtimes; how deep does not matter.

Part of bench/store.py. Each contestant is a place with a directory /data (or what stands for it) and a way
to run bench-io there, which has the clock.
"""
import json
import os
import random
import shutil
import subprocess

import run

GIT = "git status, 5,000 files"
TAR = "tar x, 5,000 files"
NPM = "npm install, offline, 40 packages of 50 files"
READS = ["read 256 MiB, warm", "read 256 MiB, cold", "20,000 random reads of 4 KiB, warm",
         "1,000 random reads of 4 KiB, cold", "read 5,000 small files, warm", "read 5,000 small files, cold",
         "stat 5,000 files", "read 5,000 files of the template, warm",
         "read 5,000 files of the template, cold", GIT]
SMALL_WRITES = ["create 5,000 small files", "rename 5,000 files", "unlink 5,000 files",
                "20,000 appends of 128 bytes and fsync", "create 50 small files, fsync each", TAR, NPM]
OTHER = ["write 256 MiB and fsync"]
HOST, DEN, OFF, BTRFS, PODMAN = ("host", "den box", "den box, history off", "btrfs in a file, no box",
                                 "podman")
LIMITS = ["--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]


class Place:
    """Where bench-io runs: argv before its own, what its directory is called there, and a way in."""

    def __init__(self, bench, name, argv, io, data, put):
        self.bench, self.name, self.argv, self.io, self.data, self.put = bench, name, argv, io, data, put
        self.samples = run.Samples()

    def run(self, *argv, check=True):
        return self.bench.in_ns(*self.argv, *argv, check=check)

    def sh(self, text, check=True):
        return self.run("sh", "-c", f"cd {self.data} && {text}", check=check)

    def measure(self, directory, *what):
        self.samples.read(self.run(self.io, self.data + directory, *what).stdout)


def host_place(b, name, top):
    data = os.path.join(top, "data")
    os.makedirs(data)
    put = lambda src: b.run("cp", "-a", src + "/.", data)
    return Place(b, name, [], b.tool("io"), data, put)


def btrfs_place(b):
    """What of the difference is the file system's, and what is the box's."""
    image, top = b.dir + "/control.img", b.dir + "/control"
    os.mkdir(top)
    b.run("truncate", "-s", "8G", image)
    b.run("mkfs.btrfs", "-q", "-K", "-m", "single", "-d", "single", image)
    loop = b.run("losetup", "--find", "--show", "--direct-io=on", "--sector-size", "4096", image).stdout.strip()
    b.cleanups.append(lambda: b.run("losetup", "-d", loop, check=False))
    b.run("mount", "-o", "noatime,discard=async", loop, top)
    b.cleanups.append(lambda: b.run("umount", top, check=False))
    return host_place(b, BTRFS, top)


def den_place(b, name, box, *options):
    b.run(b.den, "create", "--name", box, *options)
    b.run(b.den, "cp", b.tool("io"), f"{box}:/opt/io")
    b.run(b.den, "exec", box, "mkdir", "/data")
    put = lambda src: b.run(b.den, "cp", src + "/.", f"{box}:/data")
    return Place(b, name, [b.den, "exec", box], "/opt/io", "/data", put)


def podman_image(b):
    """An image made here, of next to nothing, into which the host's programs are shown. False: cannot be."""
    root = b.dir + "/image"
    if os.path.exists(root):
        return b.podman_works
    b.podman_works = False
    if not shutil.which("podman"):
        b.notes.append("podman is not installed.")
        return False
    b.ns = b.legacy_cgroup_ns()
    for d in ("usr", "etc", "tmp", "root", "proc", "dev", "sys", "data", "opt"):
        os.makedirs(f"{root}/{d}")
    for d in ("bin", "sbin", "lib", "lib64"):
        os.symlink("usr/" + d, f"{root}/{d}")
    for f in ("passwd", "group", "ld.so.cache"):
        shutil.copy("/etc/" + f, f"{root}/etc/{f}")
    shutil.copy(b.tool("io"), root + "/opt/io")
    b.run("tar", "-C", root, "-cf", b.dir + "/image.tar", ".")
    b.cleanups.append(lambda: b.in_ns(*b.podman_argv("rm", "-a", "-f", "-t", "0"), check=False))
    b.podman_works = b.works("podman import", *b.podman_argv("import", b.dir + "/image.tar", "den-bench")) and \
        b.works("podman run", *podman_run(b, "--rm"), "true")
    return b.podman_works


def podman_run(b, *options):
    return b.podman_argv("run", *options, *LIMITS, "-v", "/usr:/usr:ro", "den-bench")


def podman_place(b):
    if not podman_image(b):
        return None
    b.in_ns(*podman_run(b, "-d", "--name", "den-bench-io"), "sleep", "100000")
    put = lambda src: b.in_ns(*b.podman_argv("cp", src + "/.", "den-bench-io:/data"))
    return Place(b, PODMAN, b.podman_argv("exec", "den-bench-io"), "/opt/io", "/data", put)


# ---- what real tools get to do ----

def npm_packages(where, count=40, files=50):
    """Packages that depend on nothing, as the files that a registry would send, and one that wants all."""
    deps = {}
    os.makedirs(where + "/packages")
    for n in range(count):
        top = f"{where}/make/package"
        os.makedirs(top + "/lib")
        with open(top + "/package.json", "w") as f:
            json.dump({"name": f"dep-{n}", "version": "1.0.0", "main": "lib/f0.js"}, f)
        for i in range(files - 1):
            with open(f"{top}/lib/f{i}.js", "wb") as f:
                f.write(b"// " + os.urandom(600).hex().encode() + b"\n")
        subprocess.run(["tar", "-C", where + "/make", "-czf", f"{where}/packages/dep-{n}.tgz", "package"],
                       check=True)
        shutil.rmtree(where + "/make")
        deps[f"dep-{n}"] = f"file:packages/dep-{n}.tgz"
    with open(where + "/package.json", "w") as f:
        json.dump({"name": "app", "version": "1.0.0", "dependencies": deps}, f)


def template_files(count=5000):
    out = []
    for top in ("/usr/share", "/usr/include", "/usr/lib/python3"):
        for path, dirs, files in os.walk(top):
            dirs.sort()
            for name in sorted(files):
                p = os.path.join(path, name)
                if not os.path.islink(p) and 1024 <= os.path.getsize(p) <= 65536 and len(p) < 500:
                    out.append(p)
                if len(out) == count:
                    return out
    return out


def payload(b):
    top = b.dir + "/payload"
    os.mkdir(top)
    b.run(b.tool("io"), b.dir, "fill", "tree", str(20 << 20), "5000")
    b.run("tar", "-C", b.dir + "/tree", "-cf", top + "/archive.tar", ".")
    shutil.rmtree(b.dir + "/tree")
    with open(top + "/list", "w") as f:
        f.write("".join(p + "\n" for p in template_files()))
    if shutil.which("npm"):
        npm_packages(top + "/app")
    else:
        b.notes.append("npm is not installed.")
    if not shutil.which("git"):
        b.notes.append("git is not installed.")
    return top


def prepare(b, place, top):
    place.put(top)
    place.run(place.io, place.data, "setup")
    if shutil.which("git"):
        place.sh("mkdir repo && cd repo && tar xf ../archive.tar && git init -q . && git add -A && "
                 "git -c user.name=den -c user.email=den@localhost commit -qm all && sync -f . && sleep 1 && "
                 "git status >/dev/null")


def tools(place):
    if shutil.which("git"):
        place.measure("/repo", "run", GIT, "git", "status", "--porcelain")
    place.sh("mkdir x")
    place.measure("/x", "run", TAR, "tar", "xf", "../archive.tar")
    place.sh("rm -rf x")
    if shutil.which("npm"):
        place.measure("/app", "run", NPM, "env", "HOME=" + place.data, "npm", "install", "--offline",
                      "--no-audit", "--no-fund", "--no-progress", "--loglevel=error", "--cache",
                      place.data + "/npm-cache")
        place.sh("rm -rf app/node_modules app/package-lock.json")


def measure(b):
    places = [host_place(b, HOST, b.dir + "/host"), den_place(b, DEN, "io-on"),
              den_place(b, OFF, "io-off", "--history", "off"), btrfs_place(b), podman_place(b)]
    places = [p for p in places if p]
    top = payload(b)
    for p in places:
        run.say("preparing:", p.name)
        prepare(b, p, top)
    rounds = 2 if b.quick else b.rounds
    for r in range(-1, rounds):
        run.say(f"reads and writes: round {r + 1} of {rounds}")
        for p in random.sample(places, len(places)):
            p.run(p.io, p.data, "settle")
            p.measure("", "reads")
            if p.name not in (PODMAN, BTRFS):  # the one has the host's files there, the other is no box
                p.measure("", "listed")
            p.measure("", "writes")
            tools(p)
        if r < 0:
            for p in places:
                p.samples.clear()
    return {"rounds": rounds, "places": {p.name: p.samples for p in places}}


# ---- depth ----

def depth(b):
    """Forks of forks, each of which replaces 50 of the 5,000 files, all of them alive to the end."""
    generations = 10 if b.quick else 100
    first = den_place(b, "depth 1", "depth-0", "--history", "manual")
    first.run(first.io, "/data", "setup")
    b.tell("checkpoint", "depth-0", "checkpoint")
    forks = []
    for g in range(generations):
        s = b.tell("fork", f"depth-{g}", f"depth-{g + 1}", "fork")
        forks.append(s["fork"][0])
        # as large as before (small_size() in io.c): the same is read at either depth
        new = "; ".join(f"head -c {1024 + i * 7919 % 7168} /dev/urandom >d{i // 100:02d}/f{i:05d}"
                        for i in range(g * 50, g * 50 + 50))
        b.tell("exec", f"depth-{g + 1}", f"cd /data/small; {new}; sync -f /data")
    last = f"depth-{generations}"
    deep = Place(b, "depth", [b.den, "exec", last], "/opt/io", "/data", None)
    both = [first, deep]
    rounds = 3 if b.quick else b.rounds
    for r in range(-1, rounds):
        for p in random.sample(both, 2):
            p.measure("", "reads")
        if r < 0:
            for p in both:
                p.samples.clear()
    run.say(f"depth {generations}: measured")
    for g in range(generations + 1):
        b.tell("delete", f"depth-{g}", "delete")
    return {"generations": generations, "rounds": rounds, "forks": forks, "first": first.samples,
            "deep": deep.samples}
