#!/usr/bin/python3
"""What the tests in vault.sh need and a shell lacks.

  vault.py verify JWKS TOKEN         checks a JWT with arithmetic of its own, prints its claims
  vault.py pem JWKS KID              the public key as PEM, for openssl
  vault.py raw TOKEN INPUT SIG       writes what was signed, and the signature as openssl wants it
  vault.py kill VAULT STATE ROUNDS   kills den-vault at random moments of a set; old or new must be there
  vault.py prompt DEN NAME VALUE     a person types VALUE (or, if it is ^C, that)

Ed25519 and P-256 are written out here on purpose: what den signs with is not asked whether it is right.
"""
import base64
import hashlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import termios
import time


def unb64(s):
    return base64.urlsafe_b64decode(s + "=" * (-len(s) % 4))


# ---- Ed25519 (RFC 8032), affine and slow ----

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def ed_x(y, sign):
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(xx, (P + 3) // 8, P)
    if (x * x - xx) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - xx) % P:
        raise SystemExit("not a point")
    return P - x if x & 1 != sign else x


def ed_add(a, b):
    (x1, y1), (x2, y2) = a, b
    k = D * x1 * x2 * y1 * y2 % P
    return ((x1 * y2 + x2 * y1) * pow(1 + k, P - 2, P) % P, (y1 * y2 + x1 * x2) * pow(1 - k, P - 2, P) % P)


def ed_mul(p, n):
    q = (0, 1)
    while n:
        if n & 1:
            q = ed_add(q, p)
        p, n = ed_add(p, p), n >> 1
    return q


def ed_point(b):
    y = int.from_bytes(b, "little")
    return (ed_x(y & (1 << 255) - 1, y >> 255), y & (1 << 255) - 1)


def ed_verify(key, msg, sig):
    base_y = 4 * pow(5, P - 2, P) % P
    base = (ed_x(base_y, 0), base_y)
    s = int.from_bytes(sig[32:], "little")
    h = int.from_bytes(hashlib.sha512(sig[:32] + key + msg).digest(), "little") % L
    return len(sig) == 64 and s < L and ed_mul(base, s) == ed_add(ed_point(sig[:32]), ed_mul(ed_point(key), h))


# ---- P-256 (FIPS 186) ----

Q = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
G = (0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
     0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5)


def ec_add(a, b):
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and (a[1] + b[1]) % Q == 0:
        return None
    if a == b:
        m = (3 * a[0] * a[0] - 3) * pow(2 * a[1], Q - 2, Q)
    else:
        m = (b[1] - a[1]) * pow(b[0] - a[0], Q - 2, Q)
    x = (m * m - a[0] - b[0]) % Q
    return (x, (m * (a[0] - x) - a[1]) % Q)


def ec_mul(p, n):
    r = None
    while n:
        if n & 1:
            r = ec_add(r, p)
        p, n = ec_add(p, p), n >> 1
    return r


def ec_verify(x, y, msg, sig):
    key = (int.from_bytes(x, "big"), int.from_bytes(y, "big"))
    r, s = int.from_bytes(sig[:32], "big"), int.from_bytes(sig[32:], "big")
    if (key[1] ** 2 - key[0] ** 3 + 3 * key[0] - B) % Q or len(sig) != 64 or not (0 < r < N and 0 < s < N):
        return False
    z, w = int.from_bytes(hashlib.sha256(msg).digest(), "big"), pow(s, N - 2, N)
    p = ec_add(ec_mul(G, z * w % N), ec_mul(key, r * w % N))
    return p is not None and p[0] % N == r


# ---- tokens ----

def key_of(jwks, kid):
    keys = [k for k in json.loads(jwks)["keys"] if k["kid"] == kid]
    if len(keys) != 1:
        raise SystemExit("%d keys of that kid" % len(keys))
    return keys[0]


def thumbprint(k):
    names = ["crv", "kty", "x"] + (["y"] if k["kty"] == "EC" else [])
    text = json.dumps({n: k[n] for n in names}, separators=(",", ":"), sort_keys=True)
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def verify(jwks, token):
    head, body, sig = token.split(".")
    h = json.loads(unb64(head))
    k = key_of(jwks, h["kid"])
    if h["typ"] != "JWT" or h["alg"] != k["alg"] or k["use"] != "sig" or thumbprint(k) != h["kid"]:
        raise SystemExit("head %r and key %r do not fit" % (h, k))
    msg = (head + "." + body).encode()
    if h["alg"] == "EdDSA":
        ok = k["kty"] == "OKP" and k["crv"] == "Ed25519" and ed_verify(unb64(k["x"]), msg, unb64(sig))
    else:
        ok = k["kty"] == "EC" and k["crv"] == "P-256" and ec_verify(unb64(k["x"]), unb64(k["y"]), msg, unb64(sig))
    if not ok:
        raise SystemExit("the signature is wrong")
    print(unb64(body).decode())


def pem(jwks, kid):
    k = key_of(jwks, kid)
    if k["kty"] == "OKP":
        der = bytes.fromhex("302a300506032b6570032100") + unb64(k["x"])
    else:
        der = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004") + unb64(k["x"]) + unb64(k["y"])
    print("-----BEGIN PUBLIC KEY-----\n%s-----END PUBLIC KEY-----" % base64.encodebytes(der).decode())


def raw(token, to_input, to_sig):
    head, body, sig = token.split(".")
    sig = unb64(sig)
    if json.loads(unb64(head))["alg"] == "ES256":
        parts = b""
        for n in (sig[:32], sig[32:]):
            n = n.lstrip(b"\0")
            n = b"\0" + n if n[0] & 0x80 else n
            parts += bytes([2, len(n)]) + n
        sig = bytes([0x30, len(parts)]) + parts
    open(to_input, "w").write(head + "." + body)
    open(to_sig, "wb").write(sig)


# ---- accidents ----

def vault(program, state, **req):
    r = subprocess.run([program, state], input=json.dumps(req).encode(), stdout=subprocess.PIPE)
    return json.loads(r.stdout)


def value_of(i):
    return base64.b64encode(("%06d" % i).encode() * 10000).decode()


def kill(program, state, rounds):
    """Old or new after each kill, and both happen."""
    random.seed(int.from_bytes(os.urandom(4), "big"))
    before = "-1"
    seen = {"old": 0, "new": 0}
    vault(program, state, op="secret.set", name="A", value=value_of(0))
    took = time.monotonic()
    vault(program, state, op="secret.set", name="A", value=value_of(0))
    took = time.monotonic() - took
    before = value_of(0)
    for i in range(1, int(rounds) + 1):
        p = subprocess.Popen([program, state], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        p.stdin.write(json.dumps({"op": "secret.set", "name": "A", "value": value_of(i)}).encode())
        p.stdin.close()
        time.sleep(random.random() * took * 1.5)
        p.send_signal(signal.SIGKILL)
        p.wait()
        got = vault(program, state, op="secret.get", names=["A"])
        if "ok" not in got:
            raise SystemExit("round %d: %r" % (i, got))
        got = got["ok"]["values"]["A"]
        if got not in (before, value_of(i)):
            raise SystemExit("round %d: neither old nor new" % i)
        seen["new" if got == value_of(i) else "old"] += 1
        before = got
    print("old %(old)d new %(new)d" % seen)


# ---- a person ----

def prompt(den, name, value):
    """The value is not echoed, and the terminal echoes again after, however the prompt ended."""
    master, slave = os.openpty()
    before = termios.tcgetattr(slave)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        import fcntl
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(slave, fd)
        os.execv(den, [den, "secret", "set", name])
    seen = b""
    end = time.monotonic() + 20
    while b"not shown" not in seen and time.monotonic() < end:
        if select.select([master], [], [], 0.1)[0]:
            seen += os.read(master, 4096)
    while termios.tcgetattr(slave)[3] & termios.ECHO and time.monotonic() < end:
        time.sleep(0.01)
    os.write(master, b"\x03" if value == "^C" else value.encode() + b"\n")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    while select.select([master], [], [], 0.2)[0]:
        seen += os.read(master, 4096)
    if value.encode() in seen:
        raise SystemExit("the terminal shows it: %r" % seen)
    if termios.tcgetattr(slave) != before:
        raise SystemExit("the terminal is not as it was")
    print(status)


if __name__ == "__main__":
    {"verify": verify, "pem": pem, "raw": raw, "kill": kill, "prompt": prompt}[sys.argv[1]](*sys.argv[2:])
