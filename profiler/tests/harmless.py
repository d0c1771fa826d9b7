"""Tests that recording touches nothing that belongs to the program.

Each kind of thing has a program in `programs/harmless_*.c`. It prints `right` if it found
everything as without a recording.
"""
import itertools, os, re, shutil, signal, socket, subprocess, threading, time

from bench import LIMIT, Failed, ask

# Kinds of things that belong to a program: the program that checks each, and its arguments.
KINDS = {
    "descriptors: closed, used again, inherited, passed on": ("descriptors", ["loop", "range", "from", "dup2"]),
    "descriptors over generations of forks": ("generations", [""]),
    "paths after chdir and chroot, and files that exist": ("paths", ["relative.trace", "relative.trace jail"]),
    "limits of descriptors and of file sizes, and standard error": ("limits", ["files", "size", "stderr"]),
    "signals: handlers, masks, waits": ("signals", [""]),
    "environment, umask, errno, names, priorities, stacks": ("surroundings", [""]),
    "an allocator that locks": ("allocator", [""]),
    "the end of children": ("reap", [""]),
    "filters of system calls": ("filters", ["prctl", "call", "errno", "within", "old"]),
}
# Recordings that end before the program, or do not begin, and the number of messages about it.
ENDS_EARLY = {
    ("paths", "relative.trace jail"): 1, ("limits", "size"): 1, ("filters", "prctl"): 1, ("filters", "call"): 1, ("filters", "errno"): 1,
    ("filters", "within"): 2, ("filters", "old"): 1,
}

# Number of moments at which a program is killed.
KILLS = 24

SHELL = """exec 3>three 4>four 5>five 6>six
for number in 3 4 5 6; do echo MINE >&$number; done
i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done
/bin/true
for number in 3 4 5 6; do echo "MINE TOO" >&$number; done
echo right
"""


def run(bench, line, options, more=None, during=None):
    """Runs a program in an empty folder; returns its output on stdout and stderr."""
    folder = os.path.join(bench.tmp, "harmless")
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    environment = {name: value for name, value in os.environ.items() if name != "LEEWARD_PROFILE"}
    if options:
        environment["LEEWARD_PROFILE"] = options
    environment.update(more or {})
    program = subprocess.Popen(line, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    beside = threading.Thread(target=during, args=(program,)) if during else None
    try:
        if beside:
            beside.start()
        out, err = program.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        raise Failed(f"{' '.join(line)} with {options} hung for {LIMIT} s")
    finally:
        if beside:
            beside.join()
    if program.returncode != 0 or out.strip().splitlines()[-1:] != ["right"]:
        raise Failed(f"{' '.join(line)} with `{options}`: exit {program.returncode}\n{out}{err}")
    return out + err


def check_files(bench, name):
    """Checks the program's files after its end, because a recording writes most at the end."""
    def held(file):
        with open(os.path.join(bench.tmp, "harmless", file), "rb") as opened:
            return opened.read()
    wanted = {}
    if name == "descriptors":
        wanted = {f"file-{i:02}": "".join(f"file {i} round {n}\n" for n in range(60)) for i in range(24)}
    elif name == "limits":
        wanted = {"own": "mine"}
    for file, text in wanted.items():
        if held(file) != text.encode():
            raise Failed(f"{name}: `{file}` holds {len(held(file))} bytes, not {len(text)}")
    known = {*wanted, "as-stderr", "elsewhere"}
    if unknown := [file for file in os.listdir(os.path.join(bench.tmp, "harmless")) if file not in known and ".trace" not in file]:
        raise Failed(f"{name}: nobody of the program's made {unknown}")


def attach(bench, folder):
    """Starts and stops recordings from outside as long as the program runs."""
    def during(program):
        ended = lambda: program.poll() is not None
        while not ended():
            try:
                ask(program.pid, f"start dir={folder}/%p.trace,segment=256K,disk=4M", ended)
                time.sleep(0.05)
                ask(program.pid, "stop", ended)
            except OSError:
                return  # the program has ended, or no longer listens
    return during


def harmless(bench):
    """Runs the program of each kind with all its arguments, in each way of recording."""
    library = os.path.join(bench.out, "libleeward_rt.so")
    for engine in ("tick", "scan"):
        for kind, (name, ways) in KINDS.items():
            target = os.path.join(bench.tmp, "harmless_" + name)
            bench.compile(f"harmless_{name}.c", target, engine)
            bench.compile(f"harmless_{name}.c", target + "-plain", engine, instrument=False)
            for way in ways:
                line = [target, *way.split()]
                trace = os.path.join(bench.tmp, "harmless.trace")
                # A relative folder for the program that changes its working directory.
                folder = "relative.trace" if name == "paths" else trace
                options = f"dir={folder},segment=256K,disk=8M,threshold=1us"
                run(bench, line, None)
                # The plain program with the run-time preloaded: not recorded, then recorded.
                preloaded = [target + "-plain", *way.split()]
                run(bench, preloaded, None, {"LD_PRELOAD": library})
                run(bench, preloaded, f"on,signal=none,{options}", {"LD_PRELOAD": library})
                for recording, more, during in [
                    (f"on,signal=none,{options}", None, None),
                    (f"wait,{options}", {"HARMLESS_TOGGLE": "1"}, None),
                    (f"on,{options}", {"HARMLESS_TOGGLE": "1"}, None),
                    (f"wait,signal=none,{options}", None, attach(bench, bench.tmp)),
                ]:
                    shutil.rmtree(trace, ignore_errors=True)
                    said = run(bench, line, recording, more, during)
                    words = re.findall(r"leeward: .*", said)
                    check_files(bench, name)
                    expected = ENDS_EARLY.get((name, way), 0)
                    # Of recordings that are switched on and off, any number may end early.
                    if len(words) != expected if recording.startswith("on,signal") else (words and not expected):
                        raise Failed(f"{name} {way} with `{recording}`: {expected} sentences, not {words}")
                    left = [each for each in os.listdir(bench.tmp) if each.startswith("harmless.trace") or each.endswith(".trace")]
                    for each in left:
                        shutil.rmtree(os.path.join(bench.tmp, each), ignore_errors=True)
            print(f"ok harmless {name} {engine}", flush=True)


def shells(bench):
    """Unmodified shells with the run-time preloaded: the contents of a script's own files stay."""
    library = os.path.join(bench.out, "libleeward_rt.so")
    for shell in (["bash"], ["dash"], ["busybox", "sh"]):
        if not shutil.which(shell[0]):
            raise Failed(f"{shell[0]} is missing: scripts/setup profiler")
        for begin in ("on", "wait"):
            said = run(bench, [*shell, "-c", SHELL], f"{begin},signal=none,dir={bench.tmp}/shell-%p.trace", {"LD_PRELOAD": library})
            if "leeward:" in said:
                raise Failed(f"{shell} said {said}")
            # The test reads the files, after the shell's end: a recording writes most at that end.
            for name in ("three", "four", "five", "six"):
                with open(os.path.join(bench.tmp, "harmless", name), "rb") as file:
                    if (held := file.read()) != b"MINE\nMINE TOO\n":
                        raise Failed(f"{shell[0]}, {begin}: {len(held)} bytes in `{name}`")
        print(f"ok shell {shell[0]}", flush=True)


def kills(bench):
    """A program killed at any moment leaves its own files intact, and a trace readable up to there.

    A client that dies while it sends a command does no harm.
    """
    for engine in ("tick", "scan"):
        target = os.path.join(bench.tmp, "harmless_descriptors")
        bench.compile("harmless_descriptors.c", target, engine)
        trace = os.path.join(bench.tmp, "killed.trace")
        options = f"signal=none,dir={trace},segment=256K,disk=8M,threshold=1us"
        began = time.monotonic()
        run(bench, [target, "loop"], f"on,{options}", None, give_up)
        lasts = time.monotonic() - began
        read = 0
        for moment in range(KILLS):
            shutil.rmtree(trace, ignore_errors=True)
            kill(bench, [target, "loop"], f"{'wait' if moment % 3 == 2 else 'on'},{options}", lasts * moment / KILLS)
            if os.path.isdir(trace) and any(os.path.getsize(os.path.join(trace, name)) for name in os.listdir(trace)):
                bench.decode(trace)
                read += 1
        if read < KILLS // 3:
            raise Failed(f"kills: {read} traces of {KILLS} programs")
        print(f"ok kills {engine}", flush=True)


def give_up(program):
    """Sends commands as a client that dies after any number of bytes."""
    words = b"start dir=/nowhere/at/all\n"
    for length in [*range(len(words) + 1)] * 4:
        if program.poll() is not None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            try:
                peer.connect(f"\0leeward-profile-{program.pid}")
                peer.sendall(words[:length])
            except OSError:
                time.sleep(0.005)


def kill(bench, line, options, after):
    """Kills a program after `after` seconds: its files must hold the beginning of its output."""
    folder = os.path.join(bench.tmp, "harmless")
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    program = subprocess.Popen(line, cwd=folder, env={**os.environ, "LEEWARD_PROFILE": options}, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    asking = threading.Thread(target=attach_until_killed, args=(program,)) if options.startswith("wait") else None
    if asking:
        asking.start()
    time.sleep(after)
    # Kills the program and its child, unless both have ended.
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    program.wait()
    if asking:
        asking.join()
    for name in os.listdir(folder):
        number = re.fullmatch(r"file-(\d\d)", name)
        if not number:
            raise Failed(f"kills: nobody of the program's made {name}")
        with open(os.path.join(folder, name), "rb") as file:
            held = file.read().decode(errors="replace")
        whole = "".join(f"file {int(number[1])} round {n}\n" for n in range(60))
        if not whole.startswith(held):
            raise Failed(f"kills: `{name}` holds what the program did not write")


def attach_until_killed(program):
    commands = itertools.cycle([b"start\n", b"stop\n"])
    while program.poll() is None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                peer.settimeout(LIMIT)
                peer.connect(f"\0leeward-profile-{program.pid}")
                peer.sendall(next(commands))
                peer.recv(4096)
        except OSError:
            time.sleep(0.005)


HARMLESS = {"harmless": harmless, "shells": shells, "kills": kills}
