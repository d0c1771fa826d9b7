"""Compares two folders of results byte by byte, and describes the first differences.

A difference has a line in text, a key in JSON, and an offset in other files.
"""

import json
from pathlib import Path

SHOWN = 3
WIDTH = 140


def files(folder):
    """Relative paths of all files, sorted."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def compare(old, new):
    """Returns the number of items, and the name and first differences of each item that differs."""
    before, after = set(files(old)), set(files(new))
    found = []
    for name in sorted(before | after):
        if name not in after:
            found.append((name, ["only in OLD"]))
        elif name not in before:
            found.append((name, ["only in NEW"]))
        else:
            a, b = (Path(folder, name).read_bytes() for folder in (old, new))
            if a != b:
                found.append((name, first_differences(name, a, b)))
    return len(before | after), found


def first_differences(name, a, b):
    try:
        a, b = a.decode(), b.decode()
    except UnicodeDecodeError:
        return offsets(a, b)
    keys = keys_of(name, a, b)
    return keys if keys else lines(a.split("\n"), b.split("\n"))


def offsets(a, b):
    at = next((at for at, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    piece = slice(max(0, at - 8), at + 24)
    return [f"byte {at} of {len(a)} and {len(b)}", f"- {a[piece].hex(' ')}", f"+ {b[piece].hex(' ')}"]


def around(text, other):
    """Cuts a long line to the part at its first difference from `other`."""
    at = next((at for at, (x, y) in enumerate(zip(text, other)) if x != y), min(len(text), len(other)))
    start = max(0, at - WIDTH // 2) if len(text) > WIDTH else 0
    cut = text[start:start + WIDTH]
    return ("…" if start else "") + cut + ("…" if start + WIDTH < len(text) else "")


def lines(a, b):
    """The first lines that differ, at most `2 * SHOWN` of both sides together.

    After a difference, the comparison continues at the nearest equal lines of both sides.
    """
    shown, i, j = [], 0, 0
    while (i < len(a) or j < len(b)) and len(shown) < 2 * SHOWN:
        if i < len(a) and j < len(b) and a[i] == b[j]:
            i, j = i + 1, j + 1
            continue
        # The nearest equal lines, at most 19 lines ahead on either side.
        near = [(p + q, p, q) for p in range(20) for q in range(20)
                if i + p < len(a) and j + q < len(b) and a[i + p] == b[j + q] and a[i + p].strip()]
        _, p, q = min(near) if near else (0, 1 if i < len(a) else 0, 1 if j < len(b) else 0)
        for k in range(max(p, q)):
            x, y = (a[i + k] if k < p else ""), (b[j + k] if k < q else "")
            shown += [f"line {i + k + 1}: - {around(x, y)}"] if k < p else []
            shown += [f"line {j + k + 1}: + {around(y, x)}"] if k < q else []
        i, j = i + p, j + q
    return shown[:2 * SHOWN]


def keys_of(name, a, b):
    """The first keys with different values; an empty list if either file is no JSON."""
    try:
        if name.endswith(".json"):
            a, b = json.loads(a), json.loads(b)
        elif name.endswith(".jsonl"):
            a, b = ([json.loads(line) for line in text.splitlines()] for text in (a, b))
        else:
            return []
    except ValueError:
        return []
    found = []
    walk("", a, b, found)
    return found


def walk(path, a, b, found):
    if len(found) >= SHOWN or a == b:
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if key in a and key in b:
                walk(f"{path}.{key}", a[key], b[key], found)
            elif len(found) < SHOWN:
                found.append(f"{path}.{key}: only in {'OLD' if key in a else 'NEW'}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for at, (x, y) in enumerate(zip(a, b)):
            walk(f"{path}[{at}]", x, y, found)
    elif isinstance(a, list) and isinstance(b, list):
        found.append(f"{path}: {len(a)} entries, then {len(b)}")
    else:
        x, y = json.dumps(a), json.dumps(b)
        found.append(f"{path}: {around(x, y)} -> {around(y, x)}")
