#!/usr/bin/python3
"""A person at a terminal, for the tests in tty.sh.

  terminal.py SCENARIO PROGRAM ARGUMENT...

Starts the program on a terminal of 33 rows and 101 columns and plays the scenario. Ends with 0 when
all went as the scenario expects, else with 1 and the transcript.
"""
import fcntl
import os
import select
import signal
import struct
import sys
import termios
import time


class Terminal:
    def __init__(self, argv, rows=33, cols=101):
        self.master, self.slave = os.openpty()
        self.resize(rows, cols)
        # Held open here too, so that its settings can be read after the program ended.
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            for fd in range(3):
                os.dup2(self.slave, fd)
            os.closerange(3, 64)
            for s in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(s, signal.SIG_DFL)
            os.execvp(argv[0], argv)

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:
                pass

    def expect(self, text, seconds=10):
        end = time.monotonic() + seconds
        while text.encode() not in self.seen:
            if time.monotonic() > end:
                self.die("no %r" % text)
            self.read(0.1)
        self.seen = self.seen[self.seen.index(text.encode()) + len(text):]

    def send(self, text):
        os.write(self.master, text.encode())

    def status(self, seconds=10):
        end = time.monotonic() + seconds
        while True:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                self.die("does not end")

    def expect_status(self, want, seconds=10):
        got = self.status(seconds)
        if got != want:
            self.die("status %d, not %d" % (got, want))

    def expect_restored(self):
        after = termios.tcgetattr(self.slave)
        if after != self.before:
            self.die("the terminal's settings were changed:\n%r\n%r" % (self.before, after))

    def raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def die(self, why):
        sys.stdout.write("%s\nseen: %r\n" % (why, self.seen[-3000:]))
        sys.stdout.flush()
        try:
            os.kill(self.pid, signal.SIGKILL)
        except OSError:
            pass
        os._exit(1)


def plain(t):
    """The program's own end, and nothing else."""
    t.expect("END")
    t.expect_status(0)
    t.expect_restored()


def resize(t):
    t.expect("size 33 101")
    t.resize(20, 50)
    t.expect("size 20 50")
    t.send("q")
    t.expect_status(0)
    t.expect_restored()


def interrupt(t):
    t.expect("ready")
    t.send("\x03")
    t.expect_status(130)
    t.expect_restored()


def interrupt_caught(t):
    t.expect("ready")
    t.send("\x03")
    t.expect("caught")
    t.expect_status(4)
    t.expect_restored()


def interrupt_line(t):
    """Ctrl-C throws away what was typed, and itself: the next line is whole. Also behind a program that it ended."""
    t.expect("# ")
    t.send("echo wrong w\u00f6rds")
    t.expect("rds")
    t.send("\x03")
    t.expect("# ")
    t.send("echo first-$((1+1))\r")
    t.expect("\nfirst-2\r")
    t.send("sleep 100\r")
    time.sleep(0.5)
    t.send("\x03echo second-$((1+1))\r")
    t.expect("second-2\r")
    t.send("exit 4\r")
    t.expect_status(4)
    t.expect_restored()


def interrupt_raw(t):
    """Where the program wants the keys, they are bytes and no signals, and its settings stay."""
    t.expect("ready")
    for key in "\x03", "\x1c", "\x1a":
        t.send(key)
        t.expect("byte %d" % ord(key))
    t.send("q")
    t.expect("same")
    t.expect_status(0)
    t.expect_restored()


def suspend(t):
    """Ctrl-Z is for the program inside, as every key is."""
    t.expect("ready")
    t.send("\x1a")
    t.expect("caught")
    t.expect_status(5)
    t.expect_restored()


def unsuspended(t):
    t.expect("ready")
    t.send("\x1a")
    time.sleep(0.3)
    t.send("typed text\r")
    t.expect("got <typed text>")
    t.expect_status(0)
    t.expect_restored()


def shell(t):
    """An interactive shell: job control, history, end of file."""
    t.expect("# ")
    t.send("tty; stty size\r")
    t.expect("/dev/pts/")
    t.expect("33 101")
    t.send("sleep 100\r")
    time.sleep(0.5)
    t.send("\x1a")
    t.expect("Stopped")
    t.send("fg\r")
    t.expect("\nsleep 100")  # running again, in the foreground
    time.sleep(0.5)
    t.send("\x03")
    t.expect("# ")
    t.send("jobs; echo job-$((1+1))\r")
    t.expect("\njob-2")  # not the echo of what was typed
    t.expect("# ")
    t.send("\x04")
    t.expect_status(0)
    t.expect_restored()


def keys(t):
    """Typed text arrives once, unchanged; the outer terminal does not echo."""
    t.expect("ready")
    t.send("typed text\r")
    t.expect("got <typed text>")
    t.expect_status(0)
    t.expect_restored()


def killed(t):
    """A terminated den leaves the terminal as it was."""
    t.expect("ready")
    if not t.raw():
        t.die("the terminal was never raw")
    os.kill(t.pid, signal.SIGTERM)
    t.status()
    t.expect_restored()


def stopped(t):
    """Stopped from outside and continued, it still works."""
    t.expect("ready")
    os.kill(t.pid, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(t.pid, signal.SIGCONT)
    t.send("typed text\r")
    t.expect("got <typed text>")
    t.expect_status(0)
    t.expect_restored()


def hangup(t):
    """The terminal goes away: den must end."""
    t.expect("ready")
    os.close(t.slave)
    os.close(t.master)
    t.master = os.open("/dev/null", os.O_RDONLY)
    end = time.monotonic() + 10
    while os.waitpid(t.pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            t.die("lives on without its terminal")
        time.sleep(0.05)


def flood(t):
    """Ctrl-C ends a program that prints without end, promptly."""
    t.expect("y\r\ny")
    t.send("\x03")
    began = time.monotonic()
    t.expect_status(130)
    if time.monotonic() - began > 5:
        t.die("took %.1f s" % (time.monotonic() - began))
    t.expect_restored()


if __name__ == "__main__":
    signal.alarm(50)
    globals()[sys.argv[1]](Terminal(sys.argv[2:]))
