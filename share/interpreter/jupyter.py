"""Contexts that are Jupyter kernels: the wire protocol over ZeroMQ, as far as running cells needs it
(https://jupyter-client.readthedocs.io, "Messaging in Jupyter"). Sockets are files, not ports: those
belong to the programs of the box."""
import asyncio
import datetime
import getpass
import glob
import hashlib
import hmac
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import uuid

from process import Died, Process, Unavailable

HERE = os.path.dirname(os.path.abspath(__file__))
START_SECONDS = 60
DELIMITER = b"<IDS|MSG>"
_context = None

FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}
HOW = {
    "r": "'den template builtin code-interpreter --with r' makes a template that has it "
    "(Debian's r-cran-irkernel)",
    "java": "no kernel for it is installed; one that is listed in /usr/local/share/jupyter/kernels is used",
}


def zmq_context():
    global _context
    if _context is None:
        import zmq.asyncio  # takes a while, so not before somebody needs it

        _context = zmq.asyncio.Context()
    return _context


def result_of(data, main):
    """A bundle of representations, as a line of the stream."""
    line = {"type": "result", "is_main_result": main}
    extra = {}
    for mime, value in data.items():
        if isinstance(value, list) and mime != "application/json":
            value = "".join(str(v) for v in value)
        if mime == "text/plain":
            value = str(value)
            if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1]
        if mime in FIELDS:
            line[FIELDS[mime]] = value
        else:
            extra[mime] = value
    if extra:
        line["extra"] = extra
    return line


def spec_dirs():
    home = os.environ.get("HOME", "/")
    own = [p for p in os.environ.get("JUPYTER_PATH", "").split(":") if p]
    return [*own, home + "/.local/share/jupyter", "/usr/local/share/jupyter", "/usr/share/jupyter"]


def spec_find(language):
    """The installed kernel whose language or name this is."""
    for base in spec_dirs():
        for path in sorted(glob.glob(glob.escape(base) + "/kernels/*/kernel.json")):
            try:
                with open(path, encoding="utf-8") as f:
                    spec = json.load(f)
                names = {os.path.basename(os.path.dirname(path)).lower(), str(spec.get("language", "")).lower()}
                if language in names and spec["argv"]:
                    return spec
            except (OSError, ValueError, KeyError, TypeError):
                continue
    how = HOW.get(language, "no Jupyter kernel for it is installed in this template")
    raise Unavailable(f"the language '{language}' is not available here: {how}")


class Nursery(Process):
    """A Python that has loaded what each kernel needs, and forks: the second context and all after it
    come in a few milliseconds, and share its memory. A fork's parent ends at once, so that we, who take
    in orphans, become it."""

    def __init__(self):
        super().__init__()
        self.lock = asyncio.Lock()
        self.sock = None

    def start(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {**os.environ, "JPY_PARENT_PID": str(os.getpid()), "PYTHONUNBUFFERED": "1"}
        self.spawn([sys.executable, os.path.join(HERE, "kernel.py"), "--nursery", str(theirs.fileno())], "/", env,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(theirs.fileno(),))
        theirs.close()
        ours.setblocking(False)
        self.sock = ours

    async def fork(self, file, cwd, out):
        """The pid of a new kernel; None: there is no nursery any more."""
        loop = asyncio.get_running_loop()
        async with self.lock:
            try:
                socket.send_fds(self.sock, [json.dumps([file, cwd]).encode()], [out])
                answer = await self.until(asyncio.ensure_future(loop.sock_recv(self.sock, 64)))
                return int(answer)
            except (Died, OSError, ValueError):
                return None


nursery = None  # made by the server


class JupyterKernel(Process):
    def __init__(self, language, cwd, run_dir):
        super().__init__()
        self.language, self.cwd = language, cwd
        self.base = os.path.join(run_dir, secrets.token_hex(6))
        self.key = secrets.token_hex(32)
        self.session = uuid.uuid4().hex
        self.on_message = None
        self.message_interrupt = False
        self.tasks = []
        self.sockets = {}

    # ---- life --------------------------------------------------------------------------------

    def _argv(self):
        if self.language == "python":
            return [sys.executable, os.path.join(HERE, "kernel.py"), self.base + ".json"], {}
        spec = spec_find(self.language)
        self.message_interrupt = spec.get("interrupt_mode") == "message"
        argv = [a.replace("{connection_file}", self.base + ".json") for a in spec["argv"]]
        return argv, {k: str(v) for k, v in (spec.get("env") or {}).items()}

    def _connection_file(self):
        ports = {"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5}
        text = json.dumps({**ports, "transport": "ipc", "ip": self.base, "key": self.key,
                           "signature_scheme": "hmac-sha256", "kernel_name": self.language})
        fd = os.open(self.base + ".json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as f:
            f.write(text)

    def _connect(self):
        import zmq

        for name, kind, port in (("shell", zmq.DEALER, 1), ("iopub", zmq.SUB, 2), ("control", zmq.DEALER, 4)):
            s = zmq_context().socket(kind)
            s.linger = 0
            s.reconnect_ivl = 10
            if name == "iopub":
                s.rcvhwm = 256
                s.subscribe(b"")
            else:
                s.identity = self.session.encode()
            s.connect(f"ipc://{self.base}-{port}")
            self.sockets[name] = s

    async def start(self):
        argv, extra = self._argv()
        self._connection_file()
        env = {**os.environ, **extra, "JPY_PARENT_PID": str(os.getpid()), "PYTHONUNBUFFERED": "1"}
        # the process first: it takes longer than all that is to be done here
        r, w = os.pipe()
        pid = None
        if self.language == "python" and nursery and nursery.alive:
            pid = await nursery.fork(self.base + ".json", self.cwd, w)
        if pid:
            self.adopt(pid)
        else:
            self.spawn(argv, self.cwd, env, stdout=w, stderr=w)
        os.close(w)
        self.tasks.append(asyncio.create_task(self._keep_tail(r)))
        self._connect()
        self.tasks.append(asyncio.create_task(self._read_iopub()))
        self.tasks.append(asyncio.create_task(self._read_shell()))
        await self._greet()

    async def _greet(self):
        """Asks until its answer comes the way that output comes: then nothing is missed."""
        heard = asyncio.get_running_loop().create_future()

        async def on_message(kind, parent, content):
            if not heard.done():
                heard.set_result(True)

        self.on_message = on_message
        end = time.monotonic() + START_SECONDS
        while not heard.done():
            await self._send("shell", "kernel_info_request", {})
            await asyncio.wait([heard, self.dead], timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
            if self.dead.done():
                raise self.died()
            if time.monotonic() > end:
                await self.stop()
                raise self.died()
        self.on_message = None

    async def _keep_tail(self, fd):
        from process import TAIL_MAX, pipe_reader

        reader = await pipe_reader(fd)
        while chunk := await reader.read(65536):
            self.tail = (self.tail + chunk)[-TAIL_MAX:]

    async def stop(self):
        await super().stop()
        for t in self.tasks:
            t.cancel()
        for s in self.sockets.values():
            s.close()
        self.sockets = {}
        for path in glob.glob(glob.escape(self.base) + "*"):
            try:
                os.unlink(path)
            except OSError:
                pass

    # ---- messages ----------------------------------------------------------------------------

    def _sign(self, parts):
        h = hmac.new(self.key.encode(), digestmod=hashlib.sha256)
        for p in parts:
            h.update(p)
        return h.hexdigest().encode()

    async def _send(self, channel, kind, content):
        msg_id = uuid.uuid4().hex
        header = {"msg_id": msg_id, "msg_type": kind, "session": self.session, "username": getpass.getuser(),
                  "version": "5.3", "date": datetime.datetime.now(datetime.timezone.utc).isoformat()}
        parts = [json.dumps(p).encode() for p in (header, {}, {}, content)]
        await self.sockets[channel].send_multipart([DELIMITER, self._sign(parts), *parts])
        return msg_id

    def _parse(self, frames):
        at = frames.index(DELIMITER)
        parts = frames[at + 2 : at + 6]
        if not hmac.compare_digest(self._sign(parts), frames[at + 1]):
            raise ValueError("signature")
        # NaN and Infinity are no JSON: whoever reads the stream would choke on them
        header, parent, _, content = (json.loads(p, parse_constant=lambda c: None) for p in parts)
        return header["msg_type"], parent.get("msg_id"), content

    async def _read_iopub(self):
        while True:
            frames = await self.sockets["iopub"].recv_multipart()
            try:
                message = self._parse(frames)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # whatever it is, no kernel of ours said it
            if self.on_message:
                await self.on_message(*message)

    async def _read_shell(self):
        while True:
            await self.sockets["shell"].recv_multipart()  # all that matters came by iopub

    def interrupt(self):
        if self.message_interrupt and self.sockets:
            self.tasks.append(asyncio.create_task(self._send("control", "interrupt_request", {})))
        else:
            super().interrupt()

    # ---- cells -------------------------------------------------------------------------------

    async def _run(self, code, emit, silent=False):
        done = asyncio.get_running_loop().create_future()
        mine = None

        async def on_message(kind, parent, content):
            if parent != mine:
                return
            if kind == "status" and content.get("execution_state") == "idle":
                if not done.done():
                    done.set_result(None)
            elif not silent:
                for line in self._lines(kind, content):
                    await emit(line)

        self.on_message = on_message
        try:
            mine = await self._send("shell", "execute_request", {
                "code": code, "silent": silent, "store_history": not silent, "user_expressions": {},
                "allow_stdin": False, "stop_on_error": False})
            await self.until(done)
        finally:
            self.on_message = None

    @staticmethod
    def _lines(kind, content):
        if kind == "execute_input":
            yield {"type": "number_of_executions", "execution_count": content.get("execution_count")}
        elif kind == "stream":
            yield {"type": content["name"], "text": content["text"]}
        elif kind in ("execute_result", "display_data"):
            yield result_of(content.get("data") or {}, kind == "execute_result")
        elif kind == "error":
            yield {"type": "error", "name": content.get("ename", ""), "value": content.get("evalue", ""),
                   "traceback": "\n".join(content.get("traceback") or [])}

    def _env_code(self, env):
        if self.language == "python":
            text = repr(json.dumps(env))
            return (f"__import__('sys').modules['_den_env'].put(__import__('json').loads({text}))",
                    "__import__('sys').modules['_den_env'].back()")
        if self.language == "r":
            pairs = ", ".join(f"{k} = {json.dumps(v)}" for k, v in env.items())
            names = ", ".join(json.dumps(k) for k in env)
            return f"invisible(Sys.setenv({pairs}))", f"invisible(Sys.unsetenv(c({names})))"
        raise Unavailable(f"variables for one execution are not available in '{self.language}'")

    async def execute(self, code, env, emit):
        before, after = self._env_code(env) if env else (None, None)
        if before:
            await self._run(before, emit, silent=True)
        try:
            await self._run(code, emit)
        finally:
            if after and self.alive:
                await self._run(after, emit, silent=True)
