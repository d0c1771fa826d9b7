#!/usr/bin/env python3
"""Reads a trace for the tests of the run-time. Not a tool for users.

It is written from docs/trace-format.md alone, so it checks the writer independently. Prints one
line per event: KIND thread start duration rest. Addresses become function names where `nm` knows
them. Exits with 1 and a message for anything that the format does not allow.
"""
import bisect, glob, os, struct, subprocess, sys

MASK = (1 << 64) - 1
KINDS = {1: "call", 2: "held", 3: "waited", 4: "acquired", 5: "released", 6: "start", 7: "block", 8: "end", 9: "endall",
         10: "out", 11: "woken", 12: "in", 13: "migrated", 14: "lost", 15: "other"}
# Sorts of events of kind 15.
OTHERS = {1: "label", 2: "context", 3: "remote-call", 4: "remote-answer"}

TABLE = []
for i in range(256):
    v = i
    for _ in range(8):
        v = v >> 1 ^ 0x82F63B78 if v & 1 else v >> 1
    TABLE.append(v)


def crc32c(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc = TABLE[(crc ^ b) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if self.at + n > len(self.data):
            sys.exit("a field goes over the end of its block")
        self.at += n
        return self.data[self.at - n:self.at]

    def u8(self):
        return self.take(1)[0]

    def u32(self):
        return struct.unpack("<I", self.take(4))[0]

    def u64(self):
        return struct.unpack("<Q", self.take(8))[0]

    def varint(self):
        value = shift = 0
        while True:
            b = self.u8()
            value |= (b & 127) << shift
            shift += 7
            if b < 128:
                return value & MASK

    def signed(self):
        v = self.varint()
        return v >> 1 ^ -(v & 1)

    def text(self):
        return self.take(self.varint()).decode("utf-8", "replace")


class Trace:
    def __init__(self):
        self.header, self.modules, self.threads, self.events, self.notes, self.ends = None, {}, {}, [], [], []
        self.bytes, self.stills, self.labels, self.pace = 0, [], {}, None
        self.share, self.left_out = None, []


def header(r):
    h = {"id": r.take(16), "scale": r.u64(), "anchor": r.u64(), "monotonic": r.u64(), "wall": r.u64(), "pid": r.u32(),
         "engine": r.u8(), "call": r.varint(), "wait": r.varint(), "resolution": r.varint()}
    h["arch"], h["writer"], h["command"] = r.text(), r.text(), r.text()
    h["boot"] = r.text() if r.at < len(r.data) else ""
    return h


def modules(r, trace):
    for _ in range(r.varint()):
        key = r.varint()
        m = {"flags": r.u8(), "loaded": r.u64(), "unloaded": r.u64(), "bias": r.u64()}
        m["ranges"] = [(r.u64(), r.u64()) for _ in range(r.u8())]
        m["build_id"] = r.take(r.u8()).hex()
        m["path"] = r.text()
        trace.modules[key] = m


def threads(r, trace):
    for _ in range(r.varint()):
        key = r.varint()
        trace.threads[key] = {"tid": r.varint(), "started": r.u64(), "ended": r.u64(), "name": r.text()}


def read_events(r, trace):
    thread, count, base, earliest, latest = r.u32(), r.u32(), r.u64(), r.u64(), r.u64()
    time, first, second, last_id, table = base, 0, 0, 0, {}

    def pair(known):
        nonlocal first, second
        if known:
            slot = r.u8()
            if slot not in table:
                sys.exit("an empty slot is named")
            return table[slot]
        first = (first + r.signed()) & MASK
        second = (second + r.signed()) & MASK
        slot = (((first ^ second * 0x9E3779B97F4A7C15) & MASK) * 0xBF58476D1CE4E5B9 & MASK) >> 56
        table[slot] = (first, second)
        return first, second

    for _ in range(count):
        head = r.u8()
        kind, marks = head & 15, head & 0xF0
        time = (time + r.signed()) & MASK
        duration, rest, name = 0, (), KINDS.get(kind)
        if kind == 1:
            duration = r.varint()
            rest = pair(marks & 0x80) + (marks & 0x60,)
        elif kind == 2:
            wait, hold = r.varint(), r.varint()
            duration = wait + hold
            rest = (wait, hold) + pair(marks & 0x80) + (marks >> 4 & 7,)
        elif kind in (3, 4):
            duration = r.varint()
            rest = pair(marks & 0x80) + (marks >> 4 & 7,)
        elif kind == 5:
            rest = pair(marks & 0x80) + (marks >> 4 & 7,)
        elif kind in (6, 7, 8):
            last_id = (last_id + r.signed()) & MASK
            rest = (last_id, r.varint() if marks & 0x80 else 0)
        elif kind == 9:
            pass
        elif kind == 10:
            rest = (r.varint(), r.varint(), bool(marks & 0x10))
        elif kind in (11, 12):
            rest = (r.varint(),)
        elif kind == 13:
            rest = (r.varint(), r.varint())
        elif kind == 14:
            rest = (r.u8(), r.varint())
        elif kind == 15:
            inside = Reader(r.take(r.varint()))
            sort, last = inside.u8(), inside.varint()
            if sort not in OTHERS:
                continue
            name = OTHERS[sort]
            if sort == 1:
                rest = (last, inside.varint())
            elif sort == 2:
                rest = (last, inside.u8(), inside.u64())
            elif sort == 3:
                rest = (last, inside.u64(), inside.varint())
            else:
                rest = (last, inside.u64())
        else:
            sys.exit(f"an event of kind {kind}")
        if not earliest <= time - duration <= time <= latest:
            sys.exit(f"{name}: {time - duration}..{time} is outside of the block's {earliest}..{latest}")
        trace.events.append((name, thread, time - duration, duration, rest))
    if r.at != len(r.data):
        sys.exit("a block has more bytes than events")


def read(folder, events=True):
    trace, wanted = Trace(), events
    for path in sorted(glob.glob(os.path.join(folder, "*.lwt"))):
        data = open(path, "rb").read()
        trace.bytes += len(data)
        if data[:8] != b"LEEWTRC\n" or struct.unpack_from("<H", data, 8)[0] != 1:
            sys.exit(f"{path} is no trace")
        at = 16
        kind = None
        while at < len(data):
            magic, kind, length, crc = struct.unpack_from("<4sBxxxII", data, at)
            body = data[at + 16:at + 16 + length]
            if magic != b"\xa7LWB" or len(body) != length or (wanted or kind != 4) and crc32c(data[at + 4:at + 12] + body) != crc:
                sys.exit(f"{path}: a damaged block at {at}")
            r = Reader(body)
            if at == 16 and kind != 1:
                sys.exit(f"{path}: the first block is no header")
            if kind == 1:
                trace.header = header(r)
            elif kind == 2:
                modules(r, trace)
            elif kind == 3:
                threads(r, trace)
            elif kind == 4 and wanted:
                read_events(r, trace)
            elif kind == 6:
                r.u64()
                trace.notes.append((r.u8(), r.u8(), r.text()))
            elif kind == 8:
                r.u64()
                trace.pace = [r.varint() for _ in range(5)]
                trace.stills += [(r.u64(), r.varint(), r.varint()) for _ in range(r.varint())]
            elif kind == 10:
                r.u64()
                names = ("asked", "estimated", "functions", "left_out", "calls", "missed", "longest")
                trace.share = {name: r.varint() for name in names} | {"marks": r.u8()}
                trace.left_out = [(r.u64(), r.varint(), r.varint(), r.varint()) for _ in range(r.varint())]
            elif kind == 9:
                trace.labels.update([(r.varint(), r.text()) for _ in range(r.varint())])
            elif kind == 7:
                trace.ends.append((r.u64(), r.u8(), r.u64(), r.u64()))
            at += 16 + length
        if kind != 7:
            trace.ends.append(None)
    return trace


class Names:
    def __init__(self, trace):
        self.ranges = []
        for m in trace.modules.values():
            symbols = []
            if os.path.exists(m["path"]):
                for args in (["nm", "-C", m["path"]], ["nm", "-DC", m["path"]]):
                    out = subprocess.run(args, capture_output=True, text=True).stdout
                    for line in out.splitlines():
                        parts = line.split(" ", 2)
                        if len(parts) == 3 and parts[0] and parts[1] in "tTwWiV":
                            symbols.append((int(parts[0], 16), parts[2]))
            symbols.sort()
            for start, size in m["ranges"]:
                self.ranges.append((start, start + size, m["bias"], symbols))

    def of(self, address):
        for start, end, bias, symbols in self.ranges:
            if start <= address < end and symbols:
                i = bisect.bisect_right(symbols, (address - bias, "\uffff")) - 1
                if i >= 0:
                    # An instrumented copy (twin) gets the name of its function.
                    return symbols[i][1].replace(" [clone .leeward]", "").removesuffix(".leeward")
        return hex(address)


def main():
    trace = read(sys.argv[1])
    if trace.header is None:
        sys.exit("no trace")
    names = Names(trace)
    print("header", trace.header["engine"], trace.header["pid"], trace.header["resolution"], trace.header["command"])
    for number, t in sorted(trace.threads.items()):
        print("thread", number, t["tid"], t["name"], "ended" if t["ended"] else "lives")
    for key, m in sorted(trace.modules.items()):
        print("module", key, m["build_id"] or "-", m["path"], "unloaded" if m["unloaded"] else "loaded")
    for note in trace.notes:
        print("note", *note)
    if trace.pace:
        if sum(length for _, length, _ in trace.stills) > trace.pace[0]:
            sys.exit("more pauses are listed than there were")
        print("pace", *trace.pace, "stills", len(trace.stills))
    if trace.share:
        print("share", *(f"{name} {value}" for name, value in trace.share.items()))
        for function, calls, missed, length in trace.left_out:
            print("left out", names.of(function), "calls", calls, "missed", missed, "length", length)
    for kind, thread, start, duration, rest in trace.events:
        if kind == "label":
            if rest[1] and rest[1] not in trace.labels:
                sys.exit(f"label {rest[1]} has no text")
            rest = (rest[0], trace.labels.get(rest[1], ""))
        if kind == "remote-call":
            rest = (rest[0], rest[1], trace.labels.get(rest[2], ""))
        if kind == "call":
            rest = (names.of(rest[0]), "from", names.of(rest[1]), "early" if rest[2] & 0x20 else "cut" if rest[2] else "")
        elif kind == "held":
            rest = ("wait", rest[0], "hold", rest[1], "lock", hex(rest[2]), "at", names.of(rest[3]), "object", rest[4])
        elif kind in ("waited", "acquired", "released"):
            rest = ("object", rest[2], "lock", hex(rest[0]), "at", names.of(rest[1]))
        print(kind, thread, start - trace.header["anchor"], duration, *rest)
    for end in trace.ends:
        print("end", *(end[1:] if end else ("cut off",)))
    print("bytes", trace.bytes)


if __name__ == "__main__":
    main()
