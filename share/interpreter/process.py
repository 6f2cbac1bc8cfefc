"""What all contexts have in common: a process of their own that runs cells, can be interrupted, and
whose death is noticed at once."""
import asyncio
import ctypes
import os
import signal
import subprocess

TAIL_MAX = 4096
STOP_SECONDS = 2


class Died(Exception):
    """The process of a context is gone, and with it what it had in memory."""


class Unavailable(Exception):
    """A language that this template does not have; says how to get it."""


def death_text(code):
    if code is None or code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"signal {name}" + (" (out of memory?)" if code == -signal.SIGKILL else "")


# ---- who died ------------------------------------------------------------------------------------

PR_SET_CHILD_SUBREAPER = 36
_known = {}  # pid: Process
_strays = {}  # pid: status, of those that died before we heard their name


def reap_all():
    """All that ends below us becomes ours to bury: contexts, and what they left behind."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        code = os.waitstatus_to_exitcode(status)
        process = _known.pop(pid, None)
        if process:
            process.on_death(code)
        else:
            _strays[pid] = code
            if len(_strays) > 64:
                del _strays[next(iter(_strays))]


def reap_begin():
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, reap_all)


# ---- a process -----------------------------------------------------------------------------------


class Process:
    """In a session of its own, so that signals reach all that it started."""

    def __init__(self):
        self.pid = 0
        self.code = None
        self.dead = None
        self.tail = b""

    def spawn(self, argv, cwd, env, stdin=subprocess.DEVNULL, **more):
        popen = subprocess.Popen(argv, cwd=cwd, env=env, stdin=stdin, start_new_session=True, **more)
        popen.returncode = 0  # reap_all() waits for it, so that it need not
        self.adopt(popen.pid)

    def adopt(self, pid):
        self.pid = pid
        self.dead = asyncio.get_running_loop().create_future()
        if pid in _strays:
            self.on_death(_strays.pop(pid))
        else:
            _known[pid] = self

    def on_death(self, code):
        self.code = code
        if not self.dead.done():
            self.dead.set_result(code)

    @property
    def alive(self):
        return self.dead is not None and not self.dead.done()

    def died(self):
        words = f"the process of this context ended with {death_text(self.code)}"
        tail = self.tail.decode("utf-8", "replace").strip()
        return Died(f"{words}; its state is lost, the next execution starts a new one" + (f"\n{tail}" if tail else ""))

    def signal(self, number):
        if self.alive:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                pass

    def interrupt(self):
        self.signal(signal.SIGINT)

    async def stop(self):
        """Asks, then insists; what it left behind in its session goes with it."""
        if not self.pid:
            return
        if self.alive:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGHUP)  # an interactive shell heeds this one only
            await asyncio.wait([self.dead], timeout=STOP_SECONDS)
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        await self.dead

    async def until(self, future):
        """The result of the future, unless the process dies before."""
        await asyncio.wait([future, self.dead], return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        # what it said before it died may still be on the way
        await asyncio.wait([future], timeout=0.3)
        if future.done():
            return future.result()
        future.cancel()
        raise self.died()


async def pipe_reader(fd):
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 27)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0))
    return reader
