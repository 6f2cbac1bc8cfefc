"""docs/api/openapi.yaml against the route tables (routes FILE) and against the answers of a live server (answers)."""
import os, re, sys, urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import yaml

import kit
from kit import Api, check, fail

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = yaml.safe_load(open(os.path.join(HERE, "../../docs/api/openapi.yaml")))
METHODS = ("get", "put", "post", "patch", "delete")


def resolve(node):
    while isinstance(node, dict) and "$ref" in node:
        at = SPEC
        for part in node["$ref"].lstrip("#/").split("/"):
            at = at[part]
        node = at
    return node


def operations():
    for path, item in SPEC["paths"].items():
        for m in METHODS:
            if m in item:
                yield m.upper(), path, item, item[m]


# ---- a validator of what the description uses; an unknown keyword is an error of the description --------------------

KEYWORDS = {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "pattern", "minimum", "maximum",
            "minItems", "minLength", "maxLength", "anyOf", "description", "default"}


def kind(v):
    if v is None:
        return "null"
    if isinstance(v, bool):
        return "boolean"
    if isinstance(v, int):
        return "integer"
    if isinstance(v, float):
        return "number"
    return {str: "string", list: "array", dict: "object"}[type(v)]


def wrong(schema, v, at="answer"):
    """None, or what does not fit"""
    schema = resolve(schema)
    unknown = set(schema) - KEYWORDS
    if unknown:
        fail("%s: the validator does not know %s" % (at, unknown))
    if "anyOf" in schema:
        tried = [wrong(s, v, at) for s in schema["anyOf"]]
        return None if None in tried else tried[0]
    if "enum" in schema and v not in schema["enum"]:
        return "%s: %r is none of %r" % (at, v, schema["enum"])
    if "const" in schema and v != schema["const"]:
        return "%s: %r is not %r" % (at, v, schema["const"])
    types = schema.get("type")
    if types is not None:
        types = types if isinstance(types, list) else [types]
        if kind(v) not in types and not (kind(v) == "integer" and "number" in types):
            return "%s: %r is %s, not %s" % (at, v, kind(v), types)
    if isinstance(v, str):
        if "pattern" in schema and not re.search(schema["pattern"], v):
            return "%s: %r does not match %s" % (at, v, schema["pattern"])
        if len(v) < schema.get("minLength", 0) or len(v) > schema.get("maxLength", 1 << 60):
            return "%s: length of %r" % (at, v)
    if kind(v) in ("integer", "number"):
        if v < schema.get("minimum", v) or v > schema.get("maximum", v):
            return "%s: %r is out of bounds" % (at, v)
    if isinstance(v, list):
        if len(v) < schema.get("minItems", 0):
            return "%s: too few" % at
        for i, x in enumerate(v):
            w = wrong(schema.get("items", {}), x, "%s[%d]" % (at, i))
            if w:
                return w
    if isinstance(v, dict):
        for name in schema.get("required", []):
            if name not in v:
                return "%s: '%s' is missing" % (at, name)
        for name, x in v.items():
            if name in schema.get("properties", {}):
                w = wrong(schema["properties"][name], x, at + "." + name)
            else:
                more = schema.get("additionalProperties", True)
                if more is False:
                    return "%s: '%s' is not described" % (at, name)
                w = wrong(more, x, at + "." + name) if isinstance(more, dict) else None
            if w:
                return w
    return None


def walk(node, at, odd):
    """keys that YAML made of half a sentence"""
    for k, v in (node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()):
        if isinstance(k, str) and " " in k:
            odd.append("%s: %s" % (at, k))
        walk(v, "%s/%s" % (at, k), odd)


# ---- routes ----------------------------------------------------------------------------------------

def routes(path):
    """lines of den-serve --routes: DIALECT METHOD PATH AUTH SCOPE"""
    served = {}
    for line in open(path):
        w = line.split()
        if len(w) >= 3 and w[0] == "v1":
            served[w[1], w[2]] = w[3:]
    described = {(m, p): o for m, p, _, o in operations()}
    check(served, "the server lists no route of v1")
    check(not set(served) - set(described), "not described: %s" % sorted(set(served) - set(described)))
    check(not set(described) - set(served), "described, but not there: %s" % sorted(set(described) - set(served)))
    odd = []
    walk(SPEC, "", odd)
    check(not odd, "a comma in a description without quotes? %s" % odd)
    ids = [o["operationId"] for o in described.values()]
    check(len(ids) == len(set(ids)), "operationIds are unique")
    for (m, p), o in described.items():
        more = served[m, p]
        scope = o.get("x-scope")
        check(("none" in more) == (o.get("security") == []), "%s %s: who may: %s" % (m, p, more))
        if scope == "admin":
            check("admin" in more, "%s %s: scope: %s" % (m, p, more))
        elif scope:
            check(scope in more, "%s %s: scope %s: %s" % (m, p, scope, more))
        names = set(re.findall(r"{(\w+)}", p))
        params = [resolve(x) for x in SPEC["paths"][p].get("parameters", []) + o.get("parameters", [])]
        check(names == {x["name"] for x in params if x["in"] == "path"}, "%s %s: parameters of the path" % (m, p))
    print("%d operations" % len(described))


# ---- answers ---------------------------------------------------------------------------------------

def operation_of(method, path):
    plain = path.split("?")[0]
    for m, p, item, o in operations():
        if m == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", p), plain):
            # a literal path wins over a pattern
            if "{" in p.rsplit("/", 1)[1] and plain in SPEC["paths"]:
                continue
            return p, item, o
    return None


def body_wrong(o, body):
    schema = resolve(o.get("requestBody", {})).get("content", {}).get("application/json", {}).get("schema")
    return "no body is described" if schema is None else wrong(schema, body, "body")


def answers():
    import v1
    Api.seen = []
    done = {}
    for name, fn in v1.tests.items():
        if name in ("large_files", "usage", "events_of_keepers"):
            continue
        api = Api()
        fn(api)
        for b in api.get("/v1/boxes?limit=1000").json["boxes"]:
            api.call("DELETE", "/v1/boxes/" + b["id"], want=204)
    Api().get("/v1/usage?by=org")
    Api(key="").get("/v1/openapi.yaml")
    for method, path, body, a in Api.seen:
        op = operation_of(method, path)
        if op is None:
            check(a.status in (404, 405), "%s %s is not described: %r" % (method, path, a))
            continue
        p, item, o = op
        where = "%s %s: %d" % (method, path, a.status)
        known = o["responses"].get(str(a.status))
        check(known is not None or a.status >= 400, where + " is not described")
        if a.status < 400:
            done.setdefault((method, p), set()).add(a.status)
            # what the server took is what the description allows, too
            if body not in (None, {}):
                w = body_wrong(o, body)
                check(w is None, "%s: the server took what is not described: %s" % (where, w))
            params = {x["name"] for x in map(resolve, item.get("parameters", []) + o.get("parameters", [])) if x["in"] == "query"}
            sent = {k for k, _ in urllib.parse.parse_qsl(urllib.parse.urlsplit(path).query, keep_blank_values=True)}
            check(sent <= params, "%s: query %s is not described" % (where, sent - params))
        content = resolve(known if known is not None else o["responses"]["default"]).get("content")
        if a.status == 101:
            continue
        if content is None:
            check(not a.body, "%s: a body: %r" % (where, a))
            continue
        kind_of = a.headers.get("content-type", "").split(";")[0]
        check(kind_of in content, "%s: %s is not described" % (where, kind_of or "no type"))
        if kind_of == "application/json" and a.body:
            w = wrong(content[kind_of]["schema"], a.json)
            check(w is None, "%s: %s" % (where, w))
    # what a host without CRIU refuses is described by its refusal
    refused = {(m, operation_of(m, p)[0]) for m, p, _, a in Api.seen if a.status == 501}
    if refused:
        refused.add(("POST", "/v1/boxes/{box}/bake"))
    missing = sorted((m, p) for m, p, _, _ in operations() if (m, p) not in done and (m, p) not in refused)
    check(not missing, "never called with success: %s" % missing)
    print("%d answers of %d operations fit" % (len(Api.seen), len(done)))


if __name__ == "__main__":
    routes(sys.argv[2]) if sys.argv[1] == "routes" else answers()
