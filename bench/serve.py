#!/usr/bin/env python3
"""Measures den serve: what a client sees through the unmodified E2B SDK, and without it.

    bench/serve.py --build build [--quick] [--rounds N] [--out docs] [--state DIR]

Writes the part of docs/performance.md between its two markers. Beside it, in the same run, the same work without
the server (`den create`, `den exec`, `den rm`). The SDK is taken from BUILD/node, where scripts/npm-test.sh puts it.
Needs root.

--quick: a few rounds, 100 boxes and streams instead of 1,000, nothing written.
"""
import base64
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import run

BEGIN = "<!-- measured: written by bench/serve.py, do not edit -->"
END = "<!-- end of what was measured of the server -->"
HERE = os.path.dirname(os.path.abspath(__file__))
GOALS = {"one": 42, "hundred": 351}  # the best public figures of such services, ms


class Client:
    """E2B's dialect over one connection each for control plane and box, as the SDK does it, without the SDK."""

    def __init__(self, port, key):
        self.port, self.key = port, key
        self.conn = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.conn.connect()
        self.conn.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, method, path, body=None, headers=None):
        data = None if body is None else json.dumps(body).encode()
        head = {"X-API-KEY": self.key, **({"Content-Type": "application/json"} if data else {}), **(headers or {})}
        self.conn.request(method, path, data, head)
        r = self.conn.getresponse()
        text = r.read()
        if r.status >= 300:
            raise RuntimeError(f"{method} {path}: {r.status} {text[:200]!r}")
        return json.loads(text) if text else None

    def create(self):
        return self.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600})

    def start(self, box, command):
        body = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-c", command]}, "stdin": False}).encode()
        self.conn.request("POST", "/process.Process/Start", b"\0" + struct.pack(">I", len(body)) + body, {
            "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1",
            "E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": "49983", "X-Access-Token": box["envdAccessToken"]})
        r = self.conn.getresponse()
        if r.status != 200:
            raise RuntimeError(f"Start: {r.status} {r.read()[:200]!r}")
        return r

    @staticmethod
    def frame(r):
        flags, size = struct.unpack(">BI", r.read(5))
        return flags, json.loads(r.read(size))

    def output(self, box, command):
        """Runs it; when its first output came, and all of it."""
        r, first, out = self.start(box, command), None, b""
        while True:
            flags, m = self.frame(r)
            if flags & 2:
                break
            data = m.get("event", {}).get("data", {}).get("stdout")
            if data:
                first = first or time.perf_counter()
                out += base64.b64decode(data)
        r.read()
        return first, out

    def kill(self, box):
        self.call("DELETE", f"/sandboxes/{box['sandboxID']}")


class Serve(run.Bench):
    def __init__(self, args):
        super().__init__(args)
        self.rounds = args.rounds or (20 if args.quick else 100)
        self.many = 100 if args.quick else 1000
        self.node_dir = os.path.join(self.build, "node")
        subprocess.run([os.path.join(HERE, "..", "scripts", "npm-test.sh"), self.build], check=True, stdout=sys.stderr)
        self.port = self.free_port()
        self.log = open(os.path.join(self.dir, "serve.log"), "w+")
        self.start()
        self.cleanups.append(self.stop)
        self.cleanups.append(lambda: self.run(self.den, "pool", "warm", "--none", check=False))
        self.await_server()
        self.env.update(E2B_API_KEY=self.key, E2B_API_URL=self.url, E2B_SANDBOX_URL=self.url, NODE_DIR=self.node_dir)
        self.await_base()

    def start(self, *options):
        self.server = subprocess.Popen([self.den, "serve", "--listen", f"127.0.0.1:{self.port}", *options], env=self.env,
                                       stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def restart(self, *options):
        self.stop()
        self.start(*options)
        for _ in range(100):
            try:
                return Client(self.port, self.key).conn.close()
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("den serve does not come back")

    @staticmethod
    def free_port():
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        try:
            self.server.wait(30)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()

    def await_server(self):
        self.url = f"http://127.0.0.1:{self.port}"
        path = os.path.join(self.state, "first-key")
        for _ in range(300):
            if os.path.exists(path):
                with open(path) as f:
                    found = re.search(r"e2b_[0-9a-f]+", f.read())
                if found:
                    self.key = found.group(0)
                    return
            if self.server.poll() is not None:
                break
            time.sleep(0.1)
        self.log.seek(0)
        raise RuntimeError(f"den serve does not begin: {self.log.read()[-600:]}")

    def await_base(self):
        for i in range(240):
            try:
                c = Client(self.port, self.key)
                box = c.create()
                break
            except (RuntimeError, OSError) as e:
                if i == 239:
                    raise RuntimeError(f"no box of the template 'base': {e}") from e
                time.sleep(0.5)
        c.output(box, "true")
        c.kill(box)

    # ---- what is measured ----

    def node_argv(self, script, *args):
        node = os.path.join(self.node_dir, "bin", "node")
        return [node if os.path.exists(node) else "node", os.path.join(HERE, script), *map(str, args)]

    def node(self, *args, env=None):
        r = subprocess.run(self.node_argv("serve.mjs", *args), env=env or self.env, stdout=subprocess.PIPE, text=True,
                           timeout=900, check=True)
        return run.Samples().read(r.stdout)

    def sdk_floor(self, *args):
        """The same calls against a server that answers at once: what is left is the SDK's own time."""
        p = subprocess.Popen(self.node_argv("serve_floor.mjs"), stdout=subprocess.PIPE, text=True)
        try:
            url = f"http://127.0.0.1:{int(p.stdout.readline())}"
            return self.node(*args, env={**self.env, "E2B_API_URL": url, "E2B_SANDBOX_URL": url})
        finally:
            p.kill()
            p.wait()

    def await_ready(self, n):
        """n boxes are ready, and nobody is making any."""
        for _ in range(1200):
            if len(json.loads(self.run(self.den, "pool", "--json").stdout)["ready"]) >= n:
                time.sleep(1)
                return
            time.sleep(0.25)
        raise RuntimeError(f"{n} boxes do not get ready")

    def of_ready(self):
        """100 at once, where as many are ready. Three times each, in turns."""
        found = {"sdk100ready": run.Samples(), "raw100ready": run.Samples()}
        self.restart("--warm", "base=101")
        for _ in range(1 if self.quick else 3):
            for name, fn in (("raw100ready", lambda: self.raw_turns(100, 100)),
                             ("sdk100ready", lambda: self.node("turn", 100, 100, 1))):
                self.await_ready(101)
                for k, v in fn().items():
                    found[name].setdefault(k, []).extend(v)
        self.restart()
        self.run(self.den, "pool", "warm", "--none")
        return found

    def raw_turn(self, s):
        c = Client(self.port, self.key)
        begin = time.perf_counter()
        box = c.create()
        s.setdefault("create", []).append((time.perf_counter() - begin) * 1e3)
        first, out = c.output(box, "echo hello")
        if out != b"hello\n":
            raise RuntimeError(f"the command said {out!r}")
        s.setdefault("to the first output", []).append((first - begin) * 1e3)
        c.kill(box)
        s.setdefault("all", []).append((time.perf_counter() - begin) * 1e3)

    def raw_turns(self, n, at_once):
        s, errors = run.Samples(), []
        todo = list(range(n))

        def work():
            while todo and not errors:
                try:
                    todo.pop()
                    self.raw_turn(s)
                except Exception as e:  # told by the main thread
                    errors.append(e)
        threads = [threading.Thread(target=work) for _ in range(at_once)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if errors:
            raise errors[0]
        return s

    def alone(self, n):
        """The same without a server."""
        s = run.Samples()
        for _ in range(n):
            begin = time.perf_counter()
            box = self.run(self.den, "create", "--template", "base").stdout.strip()
            self.run(self.den, "exec", box, "--", "/bin/bash", "-c", "echo hello")
            self.run(self.den, "rm", "--force", box)
            s.setdefault("all", []).append((time.perf_counter() - begin) * 1e3)
        return s

    def raw_exec(self, n):
        c = Client(self.port, self.key)
        box, s = c.create(), run.Samples()
        for _ in range(n):
            begin = time.perf_counter()
            c.output(box, "true")
            s.setdefault("exec", []).append((time.perf_counter() - begin) * 1e3)
        c.kill(box)
        return s

    def raw_bytes(self, mib, n):
        c, s = Client(self.port, self.key), run.Samples()
        box = c.create()
        head = {"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": "49983", "X-Access-Token": box["envdAccessToken"]}
        data = b"a" * (mib << 20)
        for _ in range(n):
            begin = time.perf_counter()
            c.conn.request("POST", "/files?path=/tmp/big", data, {**head, "Content-Type": "application/octet-stream"})
            r = c.conn.getresponse()
            r.read()
            if r.status != 200:
                raise RuntimeError(f"upload: {r.status}")
            s.setdefault("up", []).append((time.perf_counter() - begin) * 1e3)
            begin, got = time.perf_counter(), 0
            c.conn.request("GET", "/files?path=/tmp/big", None, head)
            r = c.conn.getresponse()
            while chunk := r.read(1 << 20):
                got += len(chunk)
            if got != len(data):
                raise RuntimeError(f"download: {got} bytes")
            s.setdefault("down", []).append((time.perf_counter() - begin) * 1e3)
        c.kill(box)
        return s

    def requests(self, seconds):
        """GET of one sandbox a second, over 32 connections that stay."""
        if not shutil.which("wrk"):
            self.notes.append("wrk is not installed: requests a second were not measured.")
            return {}
        c = Client(self.port, self.key)
        box, found = c.create(), {}
        for name, path in (("GET /healthz", "/healthz"), ("GET /sandboxes/ID", f"/sandboxes/{box['sandboxID']}"),
                           ("GET /v1/whoami", "/v1/whoami")):
            r = self.run("wrk", "-t", "2", "-c", "32", "-d", f"{seconds}s", "-H", f"X-API-KEY: {self.key}", self.url + path)
            bad = re.search(r"Non-2xx or 3xx responses: (\d+)", r.stdout)
            if bad:
                self.notes.append(f"{name}: {bad.group(1)} were refused.")
            found[name] = float(re.search(r"Requests/sec:\s+([\d.]+)", r.stdout).group(1))
        c.kill(box)
        return found

    def server_pss(self):
        """Of the launcher's children: the server itself."""
        total, pids = 0, [self.server.pid]
        for pid in pids:
            with open(f"/proc/{pid}/task/{pid}/children") as f:
                for child in f.read().split():
                    with open(f"/proc/{child}/comm") as g:
                        if g.read().startswith("den-serve"):
                            pids.append(int(child))
        for pid in pids:
            with open(f"/proc/{pid}/comm") as g:
                if g.read().startswith("den-serve"):
                    with open(f"/proc/{pid}/smaps_rollup") as f:
                        total += int(re.search(r"^Pss:\s+(\d+)", f.read(), re.M).group(1))
        return total

    def memory(self, n):
        """kB of the server: with nothing, with n boxes, and with a stream open to each."""
        found, boxes, streams = {"nothing": self.server_pss()}, [], []
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65536),) * 2)
        c = Client(self.port, self.key)
        try:
            begin = time.perf_counter()
            for i in range(n):
                boxes.append(c.create())
                if i % 100 == 99:
                    run.say(f"{i + 1} boxes, {(time.perf_counter() - begin) / (i + 1) * 1e3:.1f} ms each")
            time.sleep(3)
            found["boxes"] = self.server_pss()
            for box in boxes:
                s = Client(self.port, self.key)
                r = s.start(box, "echo; exec sleep 3600")
                s.frame(r)
                streams.append((s, r))
            time.sleep(3)
            found["streams"] = self.server_pss()
        finally:
            for s, _ in streams:
                s.conn.close()
            for box in boxes:
                c.kill(box)
        return found

    def measure(self):
        n = self.rounds
        run.say("one after another, SDK, raw, and without the server")
        r = {"sdk": run.Samples(), "raw": run.Samples(), "alone": run.Samples()}
        for _ in range(5):  # interleaved
            for name, fn in (("sdk", lambda k: self.node("turn", k, 1)), ("raw", lambda k: self.raw_turns(k, 1)),
                             ("alone", self.alone)):
                for k, v in fn(max(2, n // 5)).items():
                    r[name].setdefault(k, []).extend(v)
        run.say("100 at once")
        r["sdk100"] = self.node("turn", 100, 100)
        r["raw100"] = self.raw_turns(100, 100)
        run.say("100 at once of ready boxes")
        r.update(self.of_ready())
        r["floor"], r["floor100"] = self.sdk_floor("turn", n, 1, 1), self.sdk_floor("turn", 100, 100, 1)
        run.say("commands, bytes, requests")
        r["sdkexec"], r["rawexec"] = self.node("exec", n), self.raw_exec(n)
        r["sdkbytes"], r["rawbytes"] = self.node("bytes", 64, 5), self.raw_bytes(64, 5)
        r["requests"] = self.requests(2 if self.quick else 5)
        run.say(f"{self.many} boxes and streams")
        r["many"], r["memory"] = self.many, self.memory(self.many)
        return r


def ms(s, name):
    return f"{s.median(name):,.1f} ({s.p95(name):,.1f})" if s.get(name) else "-"


def goals(r):
    rows = [("create, first output, kill, one after another, SDK", r["sdk"].median("all"), GOALS["one"]),
            ("the same, 100 at once, SDK", r["sdk100"].median("all"), GOALS["hundred"]),
            ("one after another, raw", r["raw"].median("all"), GOALS["one"]),
            ("100 at once, raw", r["raw100"].median("all"), GOALS["hundred"]),
            ("100 at once of ready boxes (`--warm base=101`), SDK", r["sdk100ready"].median("all"), GOALS["hundred"]),
            ("100 at once of ready boxes, raw", r["raw100ready"].median("all"), GOALS["hundred"])]
    return [(what, f"{v:.1f} ms", f"at most {limit} ms", "met" if v <= limit else "**not met**") for what, v, limit in rows]


def markdown(r):
    out = [BEGIN, "", "## The server", "", f"Measured on {r['machine']}.", "",
           "Through `den serve` on the loopback: with npm's `e2b`, unmodified, and raw, the same requests without the SDK "
           "(Python). Client, server and boxes share the processors. Median (95th percentile), ms.", "",
           "### What was promised of it", ""]
    out += run.table(["promise", "measured", "limit", ""], goals(r))
    out += ["", "### From create to kill", ""]
    steps = ("create", "to the first output", "all")
    out += run.table(["", *steps], [
        ("SDK, one after another", *[ms(r["sdk"], s) for s in steps]),
        ("raw, one after another", *[ms(r["raw"], s) for s in steps]),
        ("`den create`, `den exec`, `den rm`", *[ms(r["alone"], s) for s in steps]),
        ("SDK, 100 at once", *[ms(r["sdk100"], s) for s in steps]),
        ("raw, 100 at once", *[ms(r["raw100"], s) for s in steps]),
        ("SDK, 100 at once of ready boxes", *[ms(r["sdk100ready"], s) for s in steps]),
        ("raw, 100 at once of ready boxes", *[ms(r["raw100ready"], s) for s in steps]),
        ("SDK alone, one after another: nothing is made", *[ms(r["floor"], s) for s in steps]),
        ("SDK alone, 100 at once: nothing is made", *[ms(r["floor100"], s) for s in steps])])
    out += ["", "*SDK alone*: the same program against a server that answers at once and makes nothing. Node runs the SDK in one "
            "thread, so what is below that figure no server can reach. Before 100 at once of ready boxes, and alone, the SDK has "
            "made one sandbox: what Node compiles and connects the first time is not counted.", ""]
    out += ["", "### Commands and bytes", ""]
    rows = [("a command in a box that is there, SDK", ms(r["sdkexec"], "exec")), ("the same, raw", ms(r["rawexec"], "exec"))]
    for who, s in (("SDK", r["sdkbytes"]), ("raw", r["rawbytes"])):
        rows += [(f"64 MiB {way}, {who}", f"{64 / (s.median(way) / 1e3):,.0f} MiB/s") for way in ("up", "down")]
    rows += [(f"{name}, 32 connections", f"{v:,.0f} a second") for name, v in r["requests"].items()]
    out += run.table(["", ""], rows)
    m, n = r["memory"], r["many"]
    out += ["", "### Memory of the server (PSS)", ""]
    out += run.table(["", ""], [("with nothing", f"{m['nothing'] / 1024:.1f} MiB"),
                                (f"with {n:,} boxes", f"{m['boxes'] / 1024:.1f} MiB"),
                                (f"with {n:,} boxes and an open stream to each", f"{m['streams'] / 1024:.1f} MiB"),
                                ("a stream", f"{(m['streams'] - m['boxes']) / n:.1f} KiB")])
    out += [""] + [f"- {n}" for n in r["notes"]] + ([""] if r["notes"] else [])
    return "\n".join(out + [END])


def main():
    args = run.options(__doc__)
    b = Serve(args)
    try:
        r = {**b.measure(), "machine": run.machine(), "notes": b.notes}
    finally:
        b.clean()
    print(markdown(r))
    if not args.quick:
        run.write_part(args.out, BEGIN, END, markdown(r))
    bad = [g for g in goals(r) if g[3] != "met"]
    run.say(f"{len(bad)} of {len(goals(r))} promises of the server not met" if bad else "all promises met")


if __name__ == "__main__":
    main()
