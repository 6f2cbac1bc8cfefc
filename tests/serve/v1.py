"""The routes of /v1, for real. v1.py NAME...: runs these tests against DEN_URL."""
import os, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import v1_boxes, v1_files, v1_memory, v1_org  # each adds its tests to the table
from kit import Api
from v1_kit import tests


def main():
    names = sys.argv[1:] or list(tests)
    for n in names:
        began = time.monotonic()
        api = Api()
        tests[n](api)
        for b in api.get("/v1/boxes?limit=1000").json["boxes"]:
            api.call("DELETE", "/v1/boxes/" + b["id"], want=204)
        print("%s: %.1f s" % (n, time.monotonic() - began))


if __name__ == "__main__":
    main()
