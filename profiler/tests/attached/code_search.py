"""Functions of a stripped program, found by a text that their code refers to.

Debian's memcached has no symbols, so a right answer is an offset. The functions' bounds are those
that the unwinder's tables have.
"""
import functools
import pathlib
import re
import subprocess


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


@functools.cache
def functions(program):
    """(start, end) of all functions."""
    found = (re.search(r" FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)", line)
             for line in lines("readelf", "--debug-dump=frames", program))
    return sorted((int(one[1], 16), int(one[2], 16)) for one in found if one)


@functools.cache
def references(program):
    """(address, target) of all instructions that refer to an address of the program."""
    pattern = re.compile(r"^\s*([0-9a-f]+):\s.*(?:# |call\s+|jmp\s+)(?:0x)?([0-9a-f]+)(?: <|$)")
    found = map(pattern.match, lines("objdump", "-d", "--no-show-raw-insn", program))
    return [(int(one[1], 16), int(one[2], 16)) for one in found if one]


def around(program, address):
    return next(((start, end) for start, end in functions(program) if start <= address < end), None)


def users(program, addresses):
    """The functions with code that refers to one of the addresses."""
    found = {around(program, at) for at, target in references(program) if target in addresses}
    return found - {None}


def bounds(program, needle):
    """Bounds of the functions that use the text, and of those that call them."""
    data, needle = pathlib.Path(program).read_bytes(), needle.encode()
    # In a program of today file offset and address of read-only data are the same.
    places = {match.start() for match in re.finditer(re.escape(needle), data)}
    inner = users(program, places)
    return inner | users(program, {start for start, _ in inner})


def is_in(name, program, needle):
    """Whether a name such as `memcached+0x1234` is in one of these functions."""
    offset = re.fullmatch(re.escape(pathlib.Path(program).name) + r"\+0x([0-9a-f]+)", name)
    return bool(offset) and any(start <= int(offset[1], 16) < end for start, end in bounds(program, needle))
