"""Which fields a typed server leaves out, and which it always writes, read from the Go types of the API.

Codes: `o` left out when zero; `s` a struct that is always there; `z` a struct left out when empty; always there
otherwise: `S` text, `B` flag, `I` number, `N` list or map (null when empty), `P` null when absent, `q` quantity.
A field without a code is a pointer: there or not, whatever its value.
"""
import os
import re

STRUCT = re.compile(r"^type (\w+) struct \{")
ALIAS = re.compile(r"^type (\w+) (?!struct|interface)=?\s*([^={].*)$")
FIELD = re.compile(r'^\t(?:(\w+)\s+)?([\w\.\*\[\]]+)\s+`[^`]*json:"([^"]*)"')
NUMBERS = {"int", "int32", "int64", "uint32", "float64", "byte"}
# Packages that others refer to.
SHARED = ("api.core.v1", "apimachinery.pkg.apis.meta.v1")
# Marshal themselves: what a zero value is written as.
OWN = {"Time": "P", "MicroTime": "P", "Quantity": "q", "IntOrString": "I", "RawExtension": "P", "JSON": "P"}


def prefix(folder, root):
    parts = os.path.relpath(folder, root).split(os.sep)
    return ".".join(parts)


def read(root, folder):
    """Structs (lists of fields) and named types of one package."""
    structs, named, current = {}, {}, None
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".go") or name.endswith("_test.go") or "generated" in name:
            continue
        for line in open(os.path.join(folder, name)):
            line = line.rstrip()
            if m := STRUCT.match(line):
                current = structs.setdefault(m[1], [])
            elif line == "}":
                current = None
            elif current is not None and (m := FIELD.match(line)):
                current.append((m[2], m[3].split(",")))
            elif m := ALIAS.match(line):
                named[m[1]] = m[2].split("//")[0].strip()
    return structs, named


def kind(go, package, packages):
    """pointer, list, text, flag, number, struct or a code of OWN."""
    if go.startswith("*"):
        return "pointer"
    if go.startswith(("[]", "map[")):
        return "list"
    if go in NUMBERS:
        return "number"
    if go in ("string", "bool"):
        return {"string": "text", "bool": "flag"}[go]
    last = go.rsplit(".", 1)[-1]
    if last in OWN:
        return OWN[last]
    places = [packages[p] for p in SHARED] if "." in go else [package]
    for place in places:
        structs, named = place
        if last in named and last not in structs:
            return kind(named[last], place, packages)
        if last in structs:
            return "struct"
    return "text" if last in ("UID", "NamespacedName") else "struct"


def code(what, flags):
    short = {"text": "S", "flag": "B", "number": "I", "list": "N", "pointer": "P", "struct": "s"}
    if "omitzero" in flags:
        return "z" if what == "struct" else "o"
    if "omitempty" in flags:
        if what == "pointer":
            return ""
        return "o" if what in ("text", "flag", "number", "list") else short.get(what, what)
    return short.get(what, what)


def fields(name, package, packages):
    out = {}
    for go, (json, *flags) in package[0].get(name, []):
        if json == "-":
            continue
        if "inline" in flags or (not json and not flags):
            last = go.lstrip("*").rsplit(".", 1)[-1]
            if last in package[0] and last != "TypeMeta":
                out.update(fields(last, package, packages))
            continue
        if c := code(kind(go, package, packages), flags):
            out[json] = c
    return out


def table(roots, defs):
    packages = {}
    for root, base in roots:
        for folder, _, files in os.walk(root):
            if any(f.endswith(".go") for f in files):
                packages[f"{base}{prefix(folder, root)}"] = read(root, folder)
    out = {}
    for name in defs:
        package, struct = name.rsplit(".", 1)
        if package in packages and (found := fields(struct, packages[package], packages)):
            # Definitions are kept as JSON, where an empty list is no null.
            if package.startswith("apiextensions"):
                found = {field: code for field, code in found.items() if code not in "NP"}
            out[name] = found
    return out
