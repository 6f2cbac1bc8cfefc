"""What a test may leave behind, and how to get rid of it. Part of tests/run.

A state directory has a template of some tens of thousands of files in it, and there are two thousand tests: so
nothing here walks through a whole state, and what costs most is asked last, when the rest is clean."""
import glob
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

BOX_ID = re.compile(r"b-[a-z2-7]{18}")
# What a state directory may have in it when all boxes are gone ...
STATE_KEEPS = re.compile(r"^(den\.db.*|names|ids|lib|templates|boxes|trash|memory|baked|pool.*|lock|reserve|ready|vault|policies|volumes|"
                         r"serve|waker\.(lock|sock)|serve\.lock|serve-tls\.pem|first-key)$")
# ... what of it is not for the next test ...
OWN_TO_A_TEST = ["ready", "vault", "policies", "volumes", "serve", "serve.lock", "serve-tls.pem", "first-key", "waker.lock", "waker.sock"]
# ... and what in it is large, and no place for a socket.
LARGE = {"templates", "lib", "pool"}


# ---- processes ----------------------------------------------------------------------------------

def children(pid):
    found = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task)) as f:
                found += [int(c) for c in f.read().split()]
    except OSError:
        pass
    return found


def is_zombie(pid):
    try:
        stat = open("/proc/%d/stat" % pid).read()
    except OSError:
        return True
    return stat[stat.rindex(")") + 2] == "Z"


def all_parents():
    """For a kernel that cannot list children."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = open("/proc/%s/stat" % entry).read()
            except OSError:
                continue
            found.setdefault(int(stat[stat.rindex(")") + 2:].split()[1]), []).append(int(entry))
    return found


def descendants(root):
    """Whoever lives below this process. Zombies are none, though they may have children."""
    of = children
    if not os.path.exists("/proc/self/task/%d/children" % os.getpid()):
        table = all_parents()
        of = lambda pid: table.get(pid, [])
    found, todo = set(), of(root)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += of(pid)
    return {pid for pid in found if not is_zombie(pid)}


def reap():
    """Reaps orphans too; returns the statuses by pid."""
    ended = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def describe(pid):
    try:
        cmd = open("/proc/%d/cmdline" % pid, "rb").read().replace(b"\0", b" ")[:120]
        comm = open("/proc/%d/comm" % pid).read().strip()
        return "%d %s (%s)" % (pid, cmd.decode("utf-8", "replace").strip(), comm)
    except OSError:
        return str(pid)


def end_all():
    """Ends what the test left, so that it cannot disturb the next one."""
    for _ in range(50):
        left = descendants(os.getpid())
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.02)
        reap()
    reap()


# ---- a state directory --------------------------------------------------------------------------

def den_cgroups():
    found = []
    for base, dirs, _ in os.walk("/sys/fs/cgroup"):
        boxes = [d for d in dirs if BOX_ID.search(d)]
        found += [os.path.join(base, d) for d in boxes]
        dirs[:] = [d for d in dirs if d not in boxes]
    return found


def state_tag(state):
    """What the names of a state's cgroups begin with, so that other dens on this machine do not count.
    check_tag() sees to it that this stays true."""
    st = os.stat(state)
    return "%08x" % ((st.st_ino * 2654435761 & 0xffffffff) ^ (st.st_dev * 40503 & 0xffffffff))


def check_tag(den, state):
    env = {"PATH": "/usr/bin:/bin", "DEN_STATE": state}
    box = subprocess.run([den, "create"], env=env, stdout=subprocess.PIPE).stdout.decode().strip()
    names = [g for g in den_cgroups() if box and box in g]
    subprocess.run([den, "rm", "--force", box], env=env)
    if names and not any(state_tag(state) in g for g in names):
        sys.exit("tests/run: cgroups are named %s now: mend state_tag()" % names[0])


def database(state, ask):
    """What ask() makes of a copy: reading the original would make files beside it that belong to us."""
    if not os.path.exists(state + "/den.db"):
        return None
    with tempfile.TemporaryDirectory() as d:
        for f in glob.glob(glob.escape(state) + "/den.db*"):
            shutil.copy(f, d)
        db = sqlite3.connect(d + "/den.db")
        try:
            return ask(db)
        finally:
            db.close()


def named_templates(state):
    """A template that a test gave a name to would surprise the next one: such a state is not given on."""
    try:
        found = database(state, lambda db: db.execute("select count(*) from templates").fetchone()[0])
    except sqlite3.Error:
        return True
    return bool(found)


def rows(state):
    """Every box id in the database, whatever its tables are."""
    def ask(db):
        found = set()
        for (table,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
            for row in db.execute('select * from "%s"' % table):
                for value in row:
                    if isinstance(value, str):
                        found.update(BOX_ID.findall(value))
        return found
    try:
        return database(state, ask) or set()
    except sqlite3.Error as e:
        return {"(database: %s)" % e}


def listed(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def entries_left(state):
    found = []
    for sub in ("boxes", "names", "ids", "trash", "memory", "baked"):
        found += ["%s/%s" % (sub, e) for e in listed(os.path.join(state, sub))]
    found += ["ready/%s" % e for d in listed(state + "/ready") for e in listed(os.path.join(state, "ready", d))]
    found += ["pool/" + e for e in listed(state + "/pool") if BOX_ID.fullmatch(e)]
    return found + ["stray in state: " + e for e in listed(state) if not STATE_KEEPS.match(e)]


def sockets_left(state):
    found = []
    for base, dirs, files in os.walk(state):
        if base == state:
            dirs[:] = [d for d in dirs if d not in LARGE]
        for f in files:
            p = os.path.join(base, f)
            try:
                # a server that was killed leaves feed.sock, its waker waker.sock, and the next one takes it
                if (os.lstat(p).st_mode & 0o170000) == 0o140000 and not p.endswith(("/serve/feed.sock", "/waker.sock")):
                    found.append("socket " + p)
            except OSError:
                pass
    return found


def mounts_left(scratch, state):
    # A pool that the whole state shares may stay mounted; a mount inside a box's folder may not.
    found = []
    for line in open("/proc/self/mountinfo"):
        where = line.split()[4]
        if where.startswith(state + "/") and not where.startswith(state + "/pool"):
            found.append("mount " + where)
        if " nsfs " in line and scratch in line:
            found.append("namespace " + where)
    for back in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            name = open(back).read().strip()
        except OSError:
            continue
        if name.startswith(state + "/") and not name.startswith(state + "/pool"):
            found.append("loop device over " + name)
    return found


def cgroups_left(state):
    if not os.path.isdir(state):
        return []
    tag = state_tag(state)
    return ["cgroup " + g for g in den_cgroups() if tag in g]


def leaks_now(scratch):
    """What is left of a test whose boxes are all deleted. Empty is what we want."""
    state = scratch + "/state"
    return (["process " + describe(p) for p in sorted(descendants(os.getpid()))] or
            entries_left(state) or
            mounts_left(scratch, state) + cgroups_left(state) + sockets_left(state) +
            ["row of " + i for i in sorted(rows(state))])


def find_leaks(scratch, patience=4):
    end = time.monotonic() + patience
    pause = 0.005
    while True:
        reap()
        left = leaks_now(scratch)
        if not left or time.monotonic() > end:
            return left
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


# ---- afterwards ---------------------------------------------------------------------------------

def forget_own(state):
    """Takes away what one test made and the next must not see."""
    for left in OWN_TO_A_TEST:
        path = state + "/" + left
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)


def bare(state):
    """Leaves the template of the host, which takes seconds to make, and den-init; nothing else."""
    old, st = state + ".old", os.stat(state)
    os.rename(state, old)
    os.mkdir(state, 0o700)
    os.chown(state, st.st_uid, st.st_gid)
    for keep in "templates", "lib":
        if os.path.isdir(old + "/" + keep):
            os.rename(old + "/" + keep, state + "/" + keep)
    for name in listed(state + "/templates"):
        if not name.startswith("host-") and name != ".lock":
            subprocess.run(["rm", "-rf", "--", "%s/templates/%s" % (state, name)], stderr=subprocess.DEVNULL)


def remove_cgroups(state):
    """Of a test that failed: its keepers were killed, and nobody else removes them."""
    for g in (c[len("cgroup "):] for c in cgroups_left(state)):
        for base, dirs, _ in os.walk(g, topdown=False):
            try:
                os.rmdir(base)
            except OSError:
                pass


def clear(scratch):
    remove_cgroups(scratch + "/state")
    mounts = [l.split()[4] for l in open("/proc/self/mountinfo") if " " + scratch + "/" in l]
    for m in reversed(mounts):
        subprocess.run(["umount", "-l", m], stderr=subprocess.DEVNULL)
    if subprocess.run(["rm", "-rf", "--one-file-system", "--", scratch], stderr=subprocess.DEVNULL).returncode == 0:
        return
    for base, dirs, _ in os.walk(scratch):  # not root, and a folder that its owner may not enter
        for d in dirs:
            p = os.path.join(base, d)
            if not os.path.islink(p):
                try:
                    os.chmod(p, 0o700)
                except OSError:
                    pass
    shutil.rmtree(scratch, ignore_errors=True)
