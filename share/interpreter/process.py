"""What all contexts have in common: a process of their own that runs cells, can be interrupted, and
whose death is noticed at once."""
import asyncio
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


class Process:
    """Started in a session of its own, so that signals reach all that it started."""

    def __init__(self):
        self.popen = None
        self.dead = None
        self.pidfd = -1
        self.tail = b""

    def spawn(self, argv, cwd, env, stdin=subprocess.DEVNULL, **more):
        loop = asyncio.get_running_loop()
        self.dead = loop.create_future()
        self.popen = subprocess.Popen(argv, cwd=cwd, env=env, stdin=stdin, start_new_session=True, **more)
        self.pidfd = os.pidfd_open(self.popen.pid)
        loop.add_reader(self.pidfd, self._on_death)

    def _on_death(self):
        asyncio.get_running_loop().remove_reader(self.pidfd)
        os.close(self.pidfd)
        self.pidfd = -1
        self.popen.wait()
        if not self.dead.done():
            self.dead.set_result(self.popen.returncode)

    @property
    def alive(self):
        return self.dead is not None and not self.dead.done()

    def died(self):
        words = f"the process of this context ended with {death_text(self.popen.returncode)}"
        tail = self.tail.decode("utf-8", "replace").strip()
        return Died(f"{words}; its state is lost, the next execution starts a new one" + (f"\n{tail}" if tail else ""))

    def signal(self, number):
        if self.alive:
            try:
                os.killpg(self.popen.pid, number)
            except ProcessLookupError:
                pass

    def interrupt(self):
        self.signal(signal.SIGINT)

    async def stop(self):
        """Asks, then insists; what it left behind in its session goes with it."""
        if self.popen is None:
            return
        if self.alive:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGHUP)  # an interactive shell heeds this one only
            await asyncio.wait([self.dead], timeout=STOP_SECONDS)
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
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
