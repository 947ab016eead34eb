#!/usr/bin/env python3
"""Builds builtin.json.gz: schemas and protobuf field tables of the built-in kinds.

usage: generate.py DEFINITIONS.json K8S_PB_SRC_DIR GO_MODULES_DIR

See README.md beside this file for where the inputs come from.
"""
import gzip
import json
import os
import re
import sys

import go_fields

DROP_GROUPS = ("v1alpha", "v1beta", "v2beta")
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
ANY = (
    "JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray",
    "FieldsV1", "RawExtension", "Patch",
)
KEEP = (
    "required", "enum", "format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type", "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy",
    "x-kubernetes-group-version-kind",
)


def short(name):
    return name.removeprefix("io.k8s.")


def strip(node):
    out = {}
    if "$ref" in node:
        out["$ref"] = short(node["$ref"].rsplit("/", 1)[1])
    kind = node.get("type")
    if isinstance(kind, list):
        kind = [k for k in kind if k != "null"][0]
    if kind:
        out["type"] = kind
    for key in KEEP:
        if key in node:
            out[key] = node[key]
    if "enum" in out:
        out["enum"] = [v for v in out["enum"] if v is not None]
    if "properties" in node:
        out["properties"] = {k: strip(v) for k, v in sorted(node["properties"].items())}
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            out[key] = strip(node[key])
    return out


def schemas(path):
    raw = json.load(open(path))["$defs"]
    out = {}
    for name, node in sorted(raw.items()):
        version = name.split(".")[-2]
        if any(version.startswith(p) for p in DROP_GROUPS):
            continue
        if name == QUANTITY:
            entry = {"type": "quantity"}
        elif name == INT_OR_STRING:
            entry = {"x-kubernetes-int-or-string": True}
        elif name.rsplit(".", 1)[1] in ANY:
            entry = {"x-kubernetes-preserve-unknown-fields": True}
        else:
            entry = strip(node)
        out[short(name)] = entry
    # The artefact's source has no plain "default" on list keys; this one matters for merging ports.
    return out


STRUCT = re.compile(r"pub struct (\w+) \{")
FIELD = re.compile(r'#\[prost\((.*)\)\]')
NAME = re.compile(r"pub (?:r#)?(\w+): (.*),\s*$")


def proto(root, defs):
    by_lower = {}
    for name in defs:
        by_lower[name.lower()] = name
    out = {}
    for folder, _, files in sorted(os.walk(root)):
        if "mod.rs" not in files:
            continue
        rel = os.path.relpath(folder, root).split(os.sep)
        if rel[0] == "apimachinery" or rel[0] == "apiextensions_apiserver":
            base = [p.replace("_", "-") if p == "apiextensions_apiserver" else p for p in rel]
        else:
            base = rel
        prefix = ".".join(base)
        text = open(os.path.join(folder, "mod.rs")).read().split("\n")
        struct, tag_line = None, None
        for i, line in enumerate(text):
            if m := STRUCT.search(line):
                struct = by_lower.get(f"{prefix}.{m[1]}".lower(), f"{prefix}.{m[1]}")
                out.setdefault(struct, [])
            elif "#[prost(" in line and struct:
                block = line
                j = i
                while ")]" not in block:
                    j += 1
                    block += text[j].strip()
                tag_line = FIELD.search(block)[1] if FIELD.search(block) else None
            elif tag_line and (m := NAME.search(line)):
                joined = m[2]
                out[struct].append(field(tag_line, m[1], joined, prefix, struct, defs, by_lower))
                tag_line = None
            elif tag_line and re.search(r"pub (?:r#)?(\w+):", line) and not line.rstrip().endswith(","):
                block, j = line.strip(), i
                while not block.endswith(">,") and j < i + 6:
                    j += 1
                    block += " " + text[j].strip()
                m = NAME.search(block)
                out[struct].append(field(tag_line, m[1], m[2], prefix, struct, defs, by_lower))
                tag_line = None
    return out


def message(rust, prefix, by_lower):
    last = re.findall(r"[\w:]+", rust)[-1]
    parts, base = last.split("::"), prefix.split(".")
    while parts[0] == "super":
        base.pop()
        parts.pop(0)
    parts = [p.replace("apiextensions_apiserver", "apiextensions-apiserver") for p in parts]
    full = ".".join(base + parts)
    return by_lower.get(full.lower(), full)


def field(spec, rust_name, rust_type, prefix, struct, defs, by_lower):
    tag = int(re.search(r'tag = "(\d+)"', spec)[1])
    flat = rust_name.replace("_", "").lower()
    props = defs.get(struct, {}).get("properties", {})
    json_name = next((p for p in props if re.sub(r"[^a-z0-9]", "", p.lower()) == flat), None)
    if json_name is None and struct in defs and props:
        json_name = ""
    if json_name is None:
        head, *tail = rust_name.split("_")
        json_name = head + "".join(t.title() for t in tail)
    kind = spec.split(",")[0].split("=")[0].strip()
    repeated = "repeated" in spec
    if kind in ("map", "btree_map"):
        value = re.search(r'= "(\w+), (\w+)', spec)[2]
        target = message(rust_type, prefix, by_lower) if value == "message" else value
        return [tag, json_name, "map", target]
    if kind.startswith("bytes"):
        kind = "bytes"
    if kind == "message":
        return [tag, json_name, "list" if repeated else "one", message(rust_type, prefix, by_lower)]
    return [tag, json_name, "list" if repeated else "one", kind]


def main():
    defs = schemas(sys.argv[1])
    pb = proto(sys.argv[2], defs)
    # Follow references from what the server serves, so that the artefact stays small.
    pb = {k: v for k, v in pb.items() if not any(f".{g}" in k for g in DROP_GROUPS)}
    modules = sys.argv[3]
    roots = [
        (f"{modules}/api", "api."),
        (f"{modules}/apimachinery/pkg/apis/meta", "apimachinery.pkg.apis.meta."),
        (
            f"{modules}/apiextensions-apiserver/pkg/apis/apiextensions",
            "apiextensions-apiserver.pkg.apis.apiextensions.",
        ),
    ]
    out = json.dumps({"defs": defs, "pb": pb, "go": go_fields.table(roots, defs)}, separators=(",", ":"), sort_keys=True)
    target = os.path.join(os.path.dirname(os.path.abspath(__file__)), "builtin.json.gz")
    with open(target, "wb") as f:
        f.write(gzip.compress(out.encode(), 9, mtime=0))
    print(len(out), os.path.getsize(target))


main()
