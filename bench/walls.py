#!/usr/bin/python3
"""What a wall costs: the same work in a box of each, and beside them runsc by hand over the host's own tree.

  bench/walls.py DEN [ROUNDS]

Each figure is the least of ROUNDS (5), in milliseconds: on a busy machine the least is what says most.
"""
import os, subprocess, sys, tempfile, time

DEN = os.path.abspath(sys.argv[1])
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
RUNSC = next((p for p in (os.environ.get("DEN_RUNTIME", "/usr/local/lib/den/runtime") + "/bin/runsc", "/usr/bin/runsc")
              if os.access(p, os.X_OK)), None)

# Runs where the work is: prints NAME MILLISECONDS.
INSIDE = r"""
import os, subprocess, sys, time
def least(name, f, before=None):
    best = None
    for _ in range(int(sys.argv[1])):
        if before: before()
        t = time.monotonic()
        f()
        t = (time.monotonic() - t) * 1000
        best = t if best is None or t < best else best
    print(name, "%.2f" % best, flush=True)
def sh(c): subprocess.run(["sh", "-c", c], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
d = "/tmp/walls"
os.makedirs(d, exist_ok=True)
os.chdir(d)
sh("tar cf a.tar -C /usr/share/doc $(ls /usr/share/doc | head -100); mkdir -p r && cd r && tar xf ../a.tar && git init -q . && git add -A")
least("git_status", lambda: sh("cd r && git status"))
least("tar_x", lambda: sh("mkdir x && cd x && tar xf ../a.tar"), lambda: sh("rm -rf x"))
least("python_start", lambda: sh("python3 -c 1"))
least("program_start", lambda: sh("/bin/true"))
least("10000_getppid", lambda: [os.getppid() for _ in range(10000)])
least("compute", lambda: sum(i * i for i in range(300000)))
"""


def figures(argv):
    out = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=900).stdout
    return {a: float(b) for a, b in (line.split() for line in out.splitlines() if len(line.split()) == 2)}


def least(f):
    best = None
    for _ in range(ROUNDS):
        t = time.monotonic()
        f()
        t = (time.monotonic() - t) * 1000
        best = t if best is None or t < best else best
    return best


def of_wall(wall):
    def den(*a):
        return subprocess.run([DEN, *a], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout

    den("run", "--wall", wall, "--", "true")
    r = {"box_and_program": least(lambda: den("run", "--wall", wall, "--", "true"))}
    box = den("create", "--wall", wall).strip()
    r["exec"] = least(lambda: den("exec", box, "--", "true"))
    r.update(figures([DEN, "exec", box, "--", "python3", "-c", INSIDE, str(ROUNDS)]))
    den("rm", "--force", box)
    return r


def by_hand():
    """runsc do: the host's root, read-only, with an overlay in memory above."""
    do = [RUNSC, "--ignore-cgroups", "--network=none", "do"]
    r = {"box_and_program": least(lambda: subprocess.run([*do, "true"], stderr=subprocess.DEVNULL))}
    r.update(figures([*do, "python3", "-c", INSIDE, str(ROUNDS)]))
    return r


def main():
    with tempfile.TemporaryDirectory(prefix="den-walls.") as state:
        os.environ["DEN_STATE"] = state + "/s"
        cols = {"container": of_wall("container")}
        if RUNSC:
            cols["gvisor"] = of_wall("gvisor")
            if os.geteuid() == 0:
                cols["runsc do"] = by_hand()
        subprocess.run([DEN, "gc"], stdout=subprocess.DEVNULL)
    names = list(cols["container"])
    print("| ms | " + " | ".join(cols) + " |\n|" + "---|" * (len(cols) + 1))
    for n in names:
        print("| %s | %s |" % (n.replace("_", " "),
                               " | ".join("%.2f" % c[n] if n in c else "-" for c in cols.values())))


main()
