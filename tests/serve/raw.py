#!/usr/bin/env python3
"""HTTP byte by byte, against tests/serve/engine_test.c: what clients do wrong, slowly, or at the worst moment.

  raw.py ENGINE NAME...     starts ENGINE anew for each named check; "all" is all of them

A check is a function of raw_form.py, raw_time.py or raw_more.py; it ends without an exception, or it has failed.
"""
import sys, time, traceback

import raw_form, raw_more, raw_time

CHECKS = {
    raw_form: "keep_alive chunked expect_continue early_answers smuggling paths keys cors huge_heads jsons",
    raw_time: "slow_clients slow_body hang_ups half_closed broken_streams at_once kicks stops too_many back_pressure idle_streams many_requests",
    raw_more: "websockets upgrades tls unix_socket probes",
}


def main():
    checks = {name: getattr(where, name) for where, names in CHECKS.items() for name in names.split()}
    names = list(checks) if sys.argv[2:] == ["all"] else sys.argv[2:]
    bad = 0
    for name in names:
        if name not in checks:
            sys.exit("no such check: %s; there are %s" % (name, ", ".join(checks)))
        t = time.time()
        try:
            checks[name]()
            print("ok %s (%.1f s)" % (name, time.time() - t), flush=True)
        except Exception as e:
            bad += 1
            traceback.print_exc()
            print("FAIL %s: %s" % (name, e), flush=True)
    sys.exit(1 if bad or not names else 0)


main()
