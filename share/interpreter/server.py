#!/usr/bin/python3 -I
"""The code interpreter of a box: HTTP on port 49999, in the dialect of E2B's code interpreter.

  POST /execute                  runs a cell; answers with lines of JSON as they come
  POST|GET /contexts             makes one, lists all
  DELETE /contexts/ID            ends one
  POST /contexts/ID/restart      with an empty memory
  GET /health

A context is a process that keeps variables between cells (process.py, jupyter.py, scripts.py). It runs
one cell at a time; others wait in line. Whoever hangs up interrupts what runs for him.
"""
import asyncio
import datetime
import http
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import jupyter  # noqa: E402
from process import Died, Unavailable, reap_begin  # noqa: E402

PORT = 49999
BODY_MAX = 64 << 20
HEAD_MAX = 64 << 10
CONTEXTS_MAX = 256
KEEPALIVE_SECONDS = 5
SPELLINGS = {"js": "javascript", "node": "javascript", "ts": "typescript", "py": "python", "python3": "python",
             "sh": "bash", "shell": "bash"}
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


# ---- contexts ------------------------------------------------------------------------------------


def make_kernel(language, cwd, run_dir):
    if language in ("javascript", "typescript"):
        from scripts import NodeContext as kind
    elif language == "bash":
        from scripts import BashContext as kind
    else:
        kind = jupyter.JupyterKernel
    return kind(language, cwd, run_dir)


class Context:
    """id, language, directory, and the process that is started when it is needed."""

    def __init__(self, language, cwd, run_dir):
        self.id = str(uuid.uuid4())
        self.language, self.cwd, self.run_dir = language, cwd, run_dir
        self.turn = asyncio.Lock()  # fair: first come, first served
        self.kernel = None
        self.gone = False

    def info(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    async def start(self):
        """With the turn."""
        if self.gone:
            raise Died("the context was removed")
        if self.kernel and self.kernel.alive:
            return
        if self.kernel:
            await self.kernel.stop()
        kernel = make_kernel(self.language, self.cwd, self.run_dir)
        self.kernel = kernel
        await kernel.start()

    async def warm(self):
        async with self.turn:
            await self.start()

    async def stop(self):
        """At once: what runs in it ends with an error."""
        if self.kernel:
            await self.kernel.stop()

    async def restart(self):
        await self.stop()
        await self.warm()


class Run:
    """One execution. It goes on until its context is idle again, also when nobody listens any more."""

    def __init__(self, context, code, env, emit):
        self.context, self.code, self.env = context, code, env
        self._emit = emit
        self.listened = True
        self.started = False
        self.task = asyncio.create_task(self._run())

    async def emit(self, line):
        if self.listened:
            try:
                await self._emit(line)
            except OSError:
                self.abandon()

    async def _run(self):
        async with self.context.turn:
            self.started = True
            if not self.listened:
                return
            try:
                await self.context.start()
                if self.listened:
                    await self.context.kernel.execute(self.code, self.env, self.emit)
            except Unavailable as e:
                await self.emit({"type": "error", "name": "LanguageNotAvailable", "value": str(e), "traceback": str(e)})
            except Died as e:
                await self.emit({"type": "error", "name": "ContextDied", "value": str(e), "traceback": str(e)})
            except Exception as e:  # a defect of ours must not leave anybody waiting
                traceback.print_exc()
                await self.context.stop()
                await self.emit({"type": "error", "name": "InterpreterError", "value": f"{type(e).__name__}: {e}",
                                 "traceback": traceback.format_exc()})

    def abandon(self):
        if self.listened:
            self.listened = False
            asyncio.create_task(self._quiet())

    async def _quiet(self):
        """Interrupts until it heeds; after a while it is left alone: the line behind it can see that
        it waits, and restart the context."""
        if not self.started:
            self.task.cancel()
            return
        for pause in (0.5, 1, 2, 4, 8):
            if self.task.done():
                return
            if self.context.kernel:
                self.context.kernel.interrupt()
            await asyncio.wait([self.task], timeout=pause)


class Contexts:
    def __init__(self, run_dir):
        self.run_dir = run_dir
        self.home = os.environ.get("HOME") or "/"
        if not os.path.isdir(self.home):
            self.home = "/"
        self.all = {}
        self.defaults = {}  # language: id

    def make(self, language, cwd):
        if len(self.all) >= CONTEXTS_MAX:
            raise Refused(429, f"there are {CONTEXTS_MAX} contexts already; remove some")
        c = Context(language, cwd, self.run_dir)
        self.all[c.id] = c
        return c

    def default(self, language):
        c = self.all.get(self.defaults.get(language))
        if c is None:
            c = self.make(language, self.home)
            self.defaults[language] = c.id
        return c

    def get(self, ident):
        c = self.all.get(self.defaults.get("python")) if ident == "default" else self.all.get(ident)
        if c is None:
            if ident == "default":
                return self.default("python")
            raise Refused(404, f"Context {ident} not found")
        return c

    async def remove(self, ident):
        c = self.get(ident)
        del self.all[c.id]
        c.gone = True
        await c.stop()


# ---- HTTP ----------------------------------------------------------------------------------------


class Request:
    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body

    def json(self):
        try:
            value = json.loads(self.body or b"{}")
        except (ValueError, RecursionError):
            raise Refused(400, "the body is no JSON") from None
        if not isinstance(value, dict):
            raise Refused(400, "the body is no JSON object")
        return value


async def read_request(reader):
    """None: the client is done."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise Refused(431, "the headers are too long") from None
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refused(400, "no HTTP request")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return Request(words[0], words[1].split("?")[0], headers, await read_body(reader, headers))


async def read_body(reader, headers):
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = b""
        while True:
            try:
                size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            except ValueError:
                raise Refused(400, "a chunk has no size") from None
            if size < 0 or len(body) + size > BODY_MAX:
                raise Refused(413, f"the body is larger than {BODY_MAX} bytes")
            part = await reader.readexactly(size + 2)
            body += part[:-2]
            if not size:
                return body
    text = headers.get("content-length", "0")
    if not text.isdigit():
        raise Refused(400, "content-length is no number")
    if int(text) > BODY_MAX:
        raise Refused(413, f"the body is larger than {BODY_MAX} bytes")
    return await reader.readexactly(int(text))


def reply(writer, status, value, kind="application/json"):
    """A refusal's reason is in the status line, too: some clients show nothing else."""
    body = value.encode() if kind == "text/plain" else json.dumps(value).encode()
    reason = http.HTTPStatus(status).phrase
    if kind == "text/plain":
        reason = re.sub(r"[^ -~]", "?", value)[:300]
    writer.write(f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}; charset=utf-8\r\n"
                 f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


class Stream:
    """Lines of JSON, in chunks; something is said at least every five seconds."""

    def __init__(self, writer):
        self.writer = writer
        self.last = time.monotonic()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson; charset=utf-8\r\n"
                     b"Cache-Control: no-store\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def line(self, value):
        if value["type"] in ("stdout", "stderr"):
            value = {**value, "timestamp": datetime.datetime.now(datetime.timezone.utc).isoformat()}
        data = json.dumps(value).encode() + b"\n"
        self.last = time.monotonic()
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self.writer.drain()

    async def keepalive(self):
        while True:
            await asyncio.sleep(max(0.05, self.last + KEEPALIVE_SECONDS - time.monotonic()))
            if time.monotonic() - self.last >= KEEPALIVE_SECONDS:
                await self.line({"type": "keepalive"})

    def end(self):
        self.writer.write(b"0\r\n\r\n")


# ---- what is asked for ---------------------------------------------------------------------------


def text_field(body, name):
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise Refused(400, f"'{name}' is no text")
    return value or None


def language_of(body):
    name = (text_field(body, "language") or "python").strip().lower()
    return SPELLINGS.get(name, name)


def env_of(body):
    env = body.get("env_vars") or {}
    if not isinstance(env, dict):
        raise Refused(400, "'env_vars' is no object")
    for k, v in env.items():
        if not ENV_NAME.fullmatch(k) or not isinstance(v, str) or "\0" in v:
            raise Refused(400, f"the variable '{k[:60]}' is not allowed: names are letters, digits and _, values are text")
    return env


class Server:
    def __init__(self, contexts):
        self.contexts = contexts

    async def execute(self, request, reader, writer):
        body = request.json()
        code = body.get("code")
        if not isinstance(code, str):
            raise Refused(400, "'code' is missing or no text")
        ident = text_field(body, "context_id")
        if ident and text_field(body, "language"):
            raise Refused(400, "Only one of context_id or language can be provided")
        context = self.contexts.get(ident) if ident else self.contexts.default(language_of(body))
        env = env_of(body)
        stream = Stream(writer)
        run = Run(context, code, env, stream.line)
        beat = asyncio.create_task(stream.keepalive())
        # a client that sends something before it has its answer is as good as gone
        hung_up = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait([run.task, hung_up], return_when=asyncio.FIRST_COMPLETED)
            if not run.task.done() or not run.listened:
                run.abandon()
                return False
            beat.cancel()
            hung_up.cancel()
            await asyncio.gather(hung_up, return_exceptions=True)
            if run.task.exception():
                raise run.task.exception()
            await stream.line({"type": "end_of_execution"})
            stream.end()
            return True
        except OSError:
            run.abandon()
            return False
        finally:
            beat.cancel()
            hung_up.cancel()

    async def make_context(self, request):
        body = request.json()
        cwd = text_field(body, "cwd") or self.contexts.home
        if not os.path.isdir(cwd):
            raise Refused(400, f"the working directory '{cwd}' is not there")
        context = self.contexts.make(language_of(body), os.path.abspath(cwd))
        try:
            await context.warm()
        except (Unavailable, Died, OSError) as e:
            await self.contexts.remove(context.id)
            raise Refused(400 if isinstance(e, Unavailable) else 500, str(e)) from None
        return context.info()

    async def route(self, request, reader, writer):
        """True: the connection can be used again."""
        parts = request.path.strip("/").split("/")
        match (request.method, *parts):
            case ("GET" | "HEAD", "health"):
                reply(writer, 200, "OK")
            case ("POST", "execute"):
                return await self.execute(request, reader, writer)
            case ("GET", "contexts"):
                reply(writer, 200, [c.info() for c in self.contexts.all.values()])
            case ("POST", "contexts"):
                reply(writer, 200, await self.make_context(request))
            case ("DELETE", "contexts", ident):
                await self.contexts.remove(ident)
                reply(writer, 200, None)
            case ("POST", "contexts", ident, "restart"):
                try:
                    await self.contexts.get(ident).restart()
                except (Unavailable, Died, OSError) as e:
                    raise Refused(500, str(e)) from None
                reply(writer, 200, None)
            case _:
                raise Refused(404, "there is nothing here; see POST /execute, /contexts, GET /health")
        return True

    async def serve(self, reader, writer):
        try:
            while request := await read_request(reader):
                try:
                    if not await self.route(request, reader, writer):
                        break
                except Refused as e:
                    reply(writer, e.status, str(e), "text/plain")
                await writer.drain()
        except Refused as e:
            reply(writer, e.status, str(e), "text/plain")
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


async def main():
    run_dir = tempfile.mkdtemp(prefix="den-interpreter-")
    home_bin = os.path.join(os.environ.get("HOME", ""), ".local/bin")
    if home_bin not in os.environ.get("PATH", "").split(":"):
        os.environ["PATH"] = home_bin + ":" + os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    reap_begin()
    contexts = Contexts(run_dir)
    server = Server(contexts)
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    listener = await asyncio.start_server(server.serve, "127.0.0.1", port, limit=HEAD_MAX, backlog=512)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    # who comes first wants Python, and wants it soon
    jupyter.nursery = jupyter.Nursery()
    jupyter.nursery.start()
    first = asyncio.create_task(contexts.default("python").warm())
    await ended.wait()
    listener.close()
    first.cancel()
    await asyncio.gather(jupyter.nursery.stop(), *(c.stop() for c in contexts.all.values()), return_exceptions=True)
    try:
        os.rmdir(run_dir)
    except OSError:
        pass


if __name__ == "__main__":
    asyncio.run(main())
