"""Contexts that need no Jupyter kernel: a shell, and node."""
import asyncio
import codecs
import fcntl
import json
import os
import shlex
import shutil
import sys
import termios

from jupyter import result_of
from process import Died, Process, Unavailable, pipe_reader

HERE = os.path.dirname(os.path.abspath(__file__))


async def emit_status(emit, status):
    if status:
        await emit({"type": "error", "name": "ExitStatus", "value": str(status), "traceback": f"exit status {status}"})


class Output:
    """One of the two streams."""

    def __init__(self, owner, reader, fd, name):
        self.owner, self.reader, self.fd, self.name = owner, reader, fd, name
        self.busy = False
        self.task = asyncio.create_task(self._pump())

    async def _pump(self):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while chunk := await self.reader.read(32768):
            self.busy = True
            text = decoder.decode(chunk)
            if text and self.owner.emit:
                await self.owner.emit({"type": self.name, "text": text})
            self.busy = False
        self.fd = -1

    def pending(self):
        if self.fd < 0:
            return False
        try:
            left = fcntl.ioctl(self.fd, termios.FIONREAD, b"\0\0\0\0")
        except OSError:
            return False
        return self.busy or int.from_bytes(left, sys.byteorder) > 0 or bool(self.reader._buffer)


class Piped(Process):
    """Cells go in through a pipe, output comes through two, and replies through one of their own."""

    def __init__(self, cwd):
        super().__init__()
        self.cwd = cwd
        self.count = 0
        self.emit = None
        self.cells = -1
        self.outputs = []

    async def _launch(self, argv_of, env, stdin_cells=False):
        """argv_of: makes the arguments from the descriptors for cells and replies."""
        cells_r, self.cells = os.pipe()
        replies_r, self.reply_fd = os.pipe()
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        more = {"stdin": cells_r} if stdin_cells else {}
        self.spawn(argv_of(cells_r, self.reply_fd), self.cwd, env, stdout=out_w, stderr=err_w,
                   pass_fds=(self.reply_fd,) if stdin_cells else (cells_r, self.reply_fd), **more)
        for fd in (cells_r, self.reply_fd, out_w, err_w):
            os.close(fd)
        os.set_blocking(self.cells, False)
        self.replies = await pipe_reader(replies_r)
        for fd, name in ((out_r, "stdout"), (err_r, "stderr")):
            self.outputs.append(Output(self, await pipe_reader(fd), fd, name))

    async def _settle(self):
        """What was printed before the reply is in the pipes: it is told before the end is. A program
        that was left running and goes on printing does not keep us."""
        for _ in range(100):
            if not any(o.pending() for o in self.outputs):
                return
            await asyncio.sleep(0.005)

    async def _write(self, data):
        loop = asyncio.get_running_loop()
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.cells, view) :]
            except BlockingIOError:
                ready = loop.create_future()
                loop.add_writer(self.cells, lambda: ready.done() or ready.set_result(None))
                try:
                    await self.until(ready)
                finally:
                    loop.remove_writer(self.cells)
            except BrokenPipeError:
                await self.dead
                raise self.died() from None

    async def _left(self, emit):
        """It ended by itself: a program may do that. Gives its status."""
        await self._settle()
        code = self.code
        if code < 0:
            raise self.died()
        await emit({"type": "stderr", "text": "[the context ended; the next execution starts a new one]\n"})
        return code

    async def stop(self):
        await super().stop()
        for o in self.outputs:
            o.task.cancel()
        if self.cells >= 0:
            os.close(self.cells)
            self.cells = -1


class NodeContext(Piped):
    def __init__(self, language, cwd, run_dir):
        super().__init__(cwd)
        self.typescript = language == "typescript"

    async def start(self):
        node = shutil.which("node") or shutil.which("nodejs")
        if not node:
            raise Unavailable("the language 'javascript' is not available here: there is no node; install Debian's "
                              "nodejs on the host or with 'den template builtin code-interpreter --with javascript'")
        await self._launch(lambda cells, replies: [node, os.path.join(HERE, "driver.js"), str(cells), str(replies)],
                           {**os.environ, "NO_COLOR": "1"})
        while (await self._reply())["type"] != "ready":
            pass

    async def _reply(self):
        line = await self.until(asyncio.ensure_future(self.replies.readline()))
        if not line.endswith(b"\n"):
            await self.dead
            raise self.died()
        return json.loads(line)

    async def execute(self, code, env, emit):
        self.emit = emit
        try:
            request = json.dumps({"code": code, "env": env, "typescript": self.typescript})
            await self._write(request.encode() + b"\n")
            while True:
                try:
                    m = await self._reply()
                except Died:
                    await emit_status(emit, await self._left(emit))
                    return
                if m["type"] == "done":
                    break
                if m["type"] == "count":
                    self.count = m["count"]
                    await emit({"type": "number_of_executions", "execution_count": self.count})
                elif m["type"] == "result":
                    await emit(result_of(m["data"], m["main"]))
                elif m["type"] != "ready":
                    await emit(m)
            await self._settle()
        finally:
            self.emit = None


class BashContext(Piped):
    """An interactive shell, since only such a one goes on after SIGINT where it was. It reads its
    commands from its standard input; those of a cell read nothing."""

    def __init__(self, language, cwd, run_dir):
        super().__init__(cwd)

    async def start(self):
        bash = shutil.which("bash")
        if not bash:
            raise Unavailable("the language 'bash' is not available here: there is no bash")
        await self._launch(lambda cells, replies: [bash, "--noprofile", "--norc", "--noediting", "-i"],
                           {**os.environ, "PS1": "", "PS2": "", "HISTFILE": "", "TERM": "dumb"}, stdin_cells=True)
        await self._ask("set +m +H +o history; PS1= PS2=; unset PROMPT_COMMAND HISTFILE; export -n PS1 PS2\n")
        await asyncio.sleep(0.01)  # it complained that it has no terminal

    async def _ask(self, text):
        """Runs text, gives the status of its last command. The second line is read even when an
        interrupt threw away the first."""
        await self._write(text.encode() + f"printf '%s\\0' \"$?\" >&{self.reply_fd}\n".encode())
        try:
            reply = await self.until(asyncio.ensure_future(self.replies.readuntil(b"\0")))
        except asyncio.IncompleteReadError:
            await self.dead
            raise self.died() from None
        return int(reply[:-1])

    async def execute(self, code, env, emit):
        self.count += 1
        self.emit = emit
        try:
            await emit({"type": "number_of_executions", "execution_count": self.count})
            if env:
                names = " ".join(env)
                puts = " ".join(f"{k}={shlex.quote(v)}" for k, v in env.items())
                await self._ask(f"__den_env=$(declare -p {names} 2>/dev/null)\nexport {puts}\n")
            try:
                status = await self._ask(f"eval {shlex.quote(code)} </dev/null\n")
            except Died:
                status = await self._left(emit)
            if env and self.alive:
                await self._ask(f'unset {names}\neval "$__den_env"\nunset __den_env\n')
            await self._settle()
            await emit_status(emit, status)
        finally:
            self.emit = None
