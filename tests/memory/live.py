"""What lives in a Python process: a generator, threads, a child, a transaction, an event loop."""
import asyncio
import os
import queue
import random
import sqlite3
import subprocess
import sys
import threading
import time

steps = 0


def numbers():
    n = 0
    while True:
        yield n
        n += 1


generator = numbers()
taken = 0
told, heard = queue.Queue(), queue.Queue()
db = sqlite3.connect("%s/live-%d.db" % (os.environ.get("HOME", "/tmp"), os.getpid()), isolation_level=None)
db.execute("create table t (n integer)")
db.execute("begin immediate")
rand = random.Random(42)
again = random.Random(42)
child = subprocess.Popen(["sh", "-c", "n=0; while read x; do n=$((n + x)); echo $n; done"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True, bufsize=1)
total = 0
ticks = [0]


def echo():
    while True:
        heard.put(told.get() + 1)


async def tick():
    while True:
        await asyncio.sleep(0.02)
        ticks[0] += 1


threading.Thread(target=echo, daemon=True).start()
threading.Thread(target=lambda: asyncio.run(tick()), daemon=True).start()


def check():
    global taken, total
    if next(generator) != taken:
        return "FAIL: the generator"
    taken += 1
    told.put(taken)
    if heard.get(timeout=20) != taken + 1:
        return "FAIL: the thread"
    if db.execute("select count(*) from t").fetchone()[0] != steps or not db.in_transaction:
        return "FAIL: the transaction"
    if rand.random() != again.random():
        return "FAIL: the generator of numbers"
    total += 5
    child.stdin.write("5\n")
    if int(child.stdout.readline()) != total:
        return "FAIL: the child"
    before, end = ticks[0], time.monotonic() + 20
    while ticks[0] == before and time.monotonic() < end:
        time.sleep(0.005)
    return "ok" if ticks[0] > before else "FAIL: the event loop"


print("ready" if check() == "ok" else "FAIL: before it began", flush=True)
for line in sys.stdin:
    word, answer = line.strip(), "ok"
    if word == "step":
        steps += 1
        db.execute("insert into t values (?)", (steps,))
    elif word == "count":
        answer = "ok %d" % steps
    else:
        answer = check()
    print(answer, flush=True)
os._exit(0)
