"""kill -9 of the server in the middle of every kind of request: what was acknowledged is there, nothing is there half or twice.

kill.py LAUNCHER PORT: ends that server and starts others on its port, with DEN and DEN_STATE; none is left after."""
import atexit, os, random, signal, subprocess, sys, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kit
from kit import Api, b64, check, fail, q, soon

TMP = os.environ["TMP"]
PORT = sys.argv[2]
random.seed(int(os.environ.get("SEED", "7")))


class Server:
    def __init__(self, pid):
        self.pid, self.child = pid, None

    def worker(self):
        return int(subprocess.run(["pgrep", "-P", str(self.pid)], capture_output=True, text=True).stdout.split()[0])

    def kill(self, launcher):
        """the half that speaks HTTP, or the one that starts keepers; the other follows"""
        other = self.worker()
        os.kill(self.pid if launcher else other, signal.SIGKILL)
        if self.child:
            self.child.wait()
        soon(10, lambda: not alive(other) and not alive(self.pid), "the other half's end")

    def stop(self):
        if self.child and self.child.poll() is None:
            self.child.terminate()
            self.child.wait(20)

    def start(self):
        log = open(TMP + "/kill.log", "ab")
        at = log.tell()
        self.child = subprocess.Popen([kit.DEN, "serve", "--log", "json", "--no-templates", "--listen", "127.0.0.1:" + PORT], stdout=log, stderr=log)
        self.pid = self.child.pid

        def ready():
            check(self.child.poll() is None, "the server does not start again: " + open(TMP + "/kill.log").read()[-2000:])
            return '"ready"' in open(TMP + "/kill.log").read()[at:]
        soon(30, ready, "a server that is ready")


def alive(pid):
    try:
        return open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Gone(Exception):
    pass


class Client:
    """calls that tell Gone when the server goes in their middle"""

    def __init__(self):
        self.api = Api(timeout=30)

    def call(self, method, path, body=None, want=(200, 201, 202, 204), **more):
        try:
            self.api.conn and self.api.conn.sock
            a = self.api.call(method, path, body, None, **more)
        except Exception:
            self.api.close()
            raise Gone()
        check(a.status in want, "%s %s: %r" % (method, path, a))
        return a


# ---- kinds: run(client, state) does one request and notes what was acknowledged; verify(api, state) ------------------------

kinds = {}


def kind(cls):
    kinds[cls.__name__] = cls
    return cls


class Base:
    def __init__(self, api):
        self.acked, self.tried, self.n = [], [], 0
        self.box = api.box(history="manual")
        self.p = "/v1/boxes/" + self.box


@kind
class create:
    def __init__(self, api):
        self.tried, self.acked = [], {}
        self.n = 0

    def one(self, c):
        key = "kill-%d-%d" % (id(self), self.n)
        self.n += 1
        self.tried.append(key)
        self.acked[key] = c.call("POST", "/v1/boxes", {"labels": {"k": key}}, headers={"Idempotency-Key": key}).json["id"]

    def verify(self, api):
        for key in self.tried:
            b = api.call("POST", "/v1/boxes", {"labels": {"k": key}}, 201, headers={"Idempotency-Key": key}).json
            check(self.acked.get(key, b["id"]) == b["id"], "%s: another box" % key)
            check(b["labels"] == {"k": key}, "labels %r" % b)
            check(api.sh(b["id"], "echo 1")["stdout"] == "1\n", "it works")
        boxes = api.get("/v1/boxes?limit=1000").json["boxes"]
        check(len(boxes) == len(set(self.tried)), "%d boxes for %d keys" % (len(boxes), len(self.tried)))


@kind
class create_plain:
    def __init__(self, api):
        self.acked = []

    def one(self, c):
        self.acked.append(c.call("POST", "/v1/boxes", {}).json["id"])

    def verify(self, api):
        for b in self.acked:
            check(api.get("/v1/boxes/" + b).json["state"] == "running" and api.sh(b, "true"), "box %s" % b)


@kind
class delete:
    def __init__(self, api):
        self.left = [api.box() for _ in range(12)]
        self.acked = []

    def one(self, c):
        if not self.left:
            return time.sleep(0.01)
        b = self.left.pop()
        c.call("DELETE", "/v1/boxes/" + b)
        self.acked.append(b)

    def verify(self, api):
        for b in self.acked:
            api.get("/v1/boxes/" + b, 404)
        for b in self.left:
            check(api.get("/v1/boxes/" + b).json["state"] == "running", "untouched")


@kind
class write_file(Base):
    def one(self, c):
        n, self.n = self.n, self.n + 1
        c.call("PUT", "%s/files?path=/f%d" % (self.p, n % 5), data=(b"%08d" % n) * 20000)
        self.acked.append((n % 5, n))

    def verify(self, api):
        last = dict(self.acked)
        for i, n in last.items():
            data = api.get("%s/files?path=/f%d" % (self.p, i)).body
            check(len(data) == 160000 and data == data[:8] * 20000, "/f%d is whole" % i)
            check(int(data[:8]) >= n, "/f%d: %r, acknowledged was %d" % (i, data[:8], n))
        names = [e["path"] for e in api.get(self.p + "/files/list?path=/").json["entries"]]
        check(not [x for x in names if "new-" in x or x.startswith(".den")], "nothing half is left: %r" % names)


@kind
class exec_wait(Base):
    def one(self, c):
        n, self.n = self.n, self.n + 1
        c.call("POST", self.p + "/execs", {"command": "echo %d >> /log; sync" % n})
        self.acked.append(n)

    def verify(self, api):
        lines = api.get(self.p + "/files?path=/log").body.split() if self.acked else []
        check(all(lines.count(b"%d" % n) == 1 for n in self.acked), "each ran once: %r" % lines)


@kind
class exec_stream(Base):
    """a program whose client and server both go runs on, and its output is there"""

    def one(self, c):
        s = c.api.events("POST", self.p + "/execs", {"command": "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); sleep 0.01; done"})
        self.pid = s.until("started")[2]["pid"]
        self.acked.append(self.pid)
        try:
            for _ in s:
                pass
        except Exception:
            pass
        raise Gone()

    def verify(self, api):
        for pid in self.acked:
            check(api.get("%s/execs/%d" % (self.p, pid)).json["running"], "it goes on")
            s = api.events("GET", "%s/execs/%d/stream" % (self.p, pid))
            check(s.until("stdout")[2]["data"].startswith(b64(b"0\n")[:2]), "from its beginning")
            s.close()
            api.post("%s/execs/%d/signal" % (self.p, pid), {"signal": 9}, 204)


@kind
class detach(Base):
    def one(self, c):
        self.acked.append(c.call("POST", self.p + "/execs", {"argv": ["sleep", "1000"], "detach": True}).json["pid"])

    def verify(self, api):
        for pid in self.acked:
            check(api.get("%s/execs/%d" % (self.p, pid)).json["running"], "pid %d" % pid)


@kind
class checkpoint(Base):
    def one(self, c):
        n, self.n = self.n, self.n + 1
        c.call("PUT", self.p + "/files?path=/c", data=b"%d" % n)
        number = c.call("POST", self.p + "/checkpoints", {"message": str(n)}).json["number"]
        self.acked.append((n, number))

    def verify(self, api):
        log = {c["number"]: c for c in api.get(self.p + "/checkpoints?limit=1000").json["checkpoints"]}
        for n, number in self.acked:
            check(log[number]["message"] == str(n), "checkpoint %d" % number)
        if self.acked:
            n, number = random.choice(self.acked)
            api.post(self.p + "/rollback", {"ref": str(number)})
            check(api.get(self.p + "/files?path=/c").body == b"%d" % n, "what was in it")


@kind
class rollback(Base):
    def __init__(self, api):
        super().__init__(api)
        self.points = {}
        for v in (b"a", b"b"):
            api.call("PUT", self.p + "/files?path=/v", data=v, want=200)
            self.points[v] = api.post(self.p + "/checkpoints", {}, 201).json["number"]

    def one(self, c):
        v = random.choice((b"a", b"b"))
        self.tried = [v]
        c.call("POST", self.p + "/rollback", {"ref": str(self.points[v])})
        self.acked = [v]
        self.tried = []

    def verify(self, api):
        if api.get(self.p).json["state"] != "running":
            api.post(self.p + "/start", want=(200, 409))
        v = api.get(self.p + "/files?path=/v").body
        check(v in (b"a", b"b") and (self.tried or not self.acked or v == self.acked[-1]), "%r after %r, %r" % (v, self.acked, self.tried))


@kind
class fork(Base):
    def one(self, c):
        self.acked.append(c.call("POST", self.p + "/fork", {}).json["boxes"][0]["id"])

    def verify(self, api):
        for b in self.acked:
            check(api.get("/v1/boxes/" + b).json["state"] == "running", "fork %s" % b)


@kind
class policy(Base):
    def one(self, c):
        n, self.n = self.n, self.n + 1
        c.call("POST", self.p + "/policy/allow", {"host": "h%d.example" % n})
        self.acked.append(n)

    def verify(self, api):
        allow = str(api.get(self.p + "/policy").json["policy"].get("allow"))
        check(all("'h%d.example" % n in allow for n in self.acked), "%r of %s" % (self.acked, allow))


@kind
class settings(Base):
    """labels, ports, secrets, stored policies, keys"""

    def one(self, c):
        n, self.n = self.n, self.n + 1
        c.call("PATCH", self.p, {"labels": {"n": str(n)}})
        c.call("PUT", "%s/ports/%d" % (self.p, 1000 + n), {"public": True})
        c.call("PUT", "/v1/secrets/S%d" % n, {"value": "a value %d" % n})
        c.call("PUT", "/v1/policies/p%d" % n, {"version": 1, "allow": ["h%d.example" % n]})
        key = c.call("POST", "/v1/keys", {"name": str(n)}).json["key"]
        self.acked.append((n, key))

    def verify(self, api):
        if not self.acked:
            return
        check(int(api.get(self.p).json["labels"]["n"]) >= self.acked[-1][0], "labels")
        ports = {p["port"] for p in api.get(self.p + "/ports").json["ports"]}
        names = {s["name"] for s in api.get("/v1/secrets?limit=1000").json["secrets"]}
        for n, key in self.acked:
            check(1000 + n in ports and "S%d" % n in names, "port and secret %d" % n)
            check(api.get("/v1/policies/p%d" % n).json["policy"]["allow"] == ["h%d.example" % n], "policy")
            Api(key).get("/v1/whoami")


@kind
class tar_in(Base):
    def one(self, c):
        import io, tarfile
        n, self.n = self.n, self.n + 1
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as t:
            for i in range(20):
                m = tarfile.TarInfo("t%d/f%d" % (n, i))
                m.size = 5000
                t.addfile(m, io.BytesIO(b"%d" % (n % 10) * 5000))
        c.call("PUT", self.p + "/tar?path=/srv", data=raw.getvalue())
        self.acked.append(n)

    def verify(self, api):
        for n in self.acked:
            sizes = [e["size"] for e in api.get("%s/files/list?path=/srv/t%d" % (self.p, n)).json["entries"]]
            check(sizes == [5000] * 20, "t%d: %r" % (n, sizes))


@kind
class life(Base):
    def one(self, c):
        for step, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopped"), ("start", "running")):
            self.tried = [state]
            c.call("POST", "%s/%s" % (self.p, step), {})
            self.acked, self.tried = [state], []

    def verify(self, api):
        state = api.get(self.p).json["state"]
        check(state in ("running", "paused", "stopped") and (self.tried or not self.acked or state == self.acked[-1]),
              "%s after %r, %r" % (state, self.acked, self.tried))


def work(k, stop):
    c = Client()
    try:
        while not stop.is_set():
            k.one(c)
    except Gone:
        pass


def main():
    server = Server(int(sys.argv[1]))
    atexit.register(server.stop)
    total = 0
    for name, cls in kinds.items():
        for launcher in (False, True):
            k = cls(Api())
            stop = threading.Event()
            t = threading.Thread(target=work, args=(k, stop))
            t.start()
            time.sleep(random.uniform(0.05, 0.35))
            server.kill(launcher)
            stop.set()
            t.join()
            server.start()
            api = Api()
            k.verify(api)
            total += len(k.acked)
            for b in api.get("/v1/boxes?limit=1000").json["boxes"]:
                api.call("DELETE", "/v1/boxes/" + b["id"], want=204)
            print("%s, %s: %d acknowledged" % (name, "launcher" if launcher else "server", len(k.acked)), flush=True)
    check(total > len(kinds), "hardly anything was acknowledged: %d" % total)


if __name__ == "__main__":
    main()
