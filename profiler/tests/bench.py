"""Shared by the tests of the pass and the run-time. Not a program.

Compiles with the plugin, runs programs, reads traces, and sends commands to a program's socket.
"""
import os, re, shutil, signal, socket, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ATTEMPTS = 6
LIMIT = 120  # seconds after which a program counts as hung
SLOW = r"^call \d+ -?\d+ (\d{7,}) .*%s"


class Failed(Exception):
    pass


class Bench:
    def __init__(self, options):
        self.out, self.llvm = os.path.abspath(options.out), options.llvm
        self.tmp = tempfile.mkdtemp(prefix="leeward-profiler-")
        self.extra = options.flags.split()
        self.sanitizer = options.sanitizer
        self.sanitized = bool(options.sanitizer)
        if self.sanitized:
            # The sanitizer is to check the run-time: memory of a program that ends by _exit is no
            # leak.
            self.extra += ["-fsanitize=" + options.sanitizer, "-fno-sanitize-recover=all"]
            os.environ["ASAN_OPTIONS"] = "detect_leaks=0"
            os.environ["TSAN_OPTIONS"] = "die_after_fork=0:atexit_sleep_ms=0"

    def compile(self, source, target, engine, level="-O2", extra=(), link="program", instrument=True):
        clang = ("clang++-" if source.endswith("pp") else "clang-") + self.llvm
        plugin = os.path.join(self.out, "libleeward_pass.so")
        line = [clang, level, "-g", "-pthread", "-I", os.path.join(self.out, "include"), os.path.join(HERE, "programs", source),
                "-o", target, *self.extra]
        if instrument:
            line += ["-Xclang", "-load", "-Xclang", plugin, "-fpass-plugin=" + plugin, "-mllvm", "-leeward-engine=" + engine,
                     *extra]
            lib = lambda name: os.path.join(self.out, name)
            if link in ("program", "static"):
                line += ["-Wl,--whole-archive", lib("libleeward_rt.a"), *([lib("libleeward_shim.a")] if link == "program" else []), "-Wl,--no-whole-archive", "-ldl"]
                line += ["-Wl,--export-dynamic-symbol=__leeward_*", "-Wl,--export-dynamic-symbol=leeward_req_*"] if link == "program" else []
            elif link == "library":
                line += [lib("libleeward_stub.a")]
        else:
            line += [word for word in extra if word.startswith(("-std", "-fno-"))]
        line += {"library": ["-shared", "-fPIC"], "static": ["-static"], "object": ["-c"], "assembly": ["-S", "-g0"]}.get(link, ["-ldl"])
        self.call(line)

    def call(self, line, **more):
        # A session of its own, so that `killpg` also ends forked children of a program that hangs.
        running = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **more)
        try:
            stdout, stderr = running.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            raise Failed(f"{' '.join(line)} hung for {LIMIT} s")
        except BaseException:
            # If the tests are ended, the program ends with them.
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            raise
        if running.returncode != 0:
            raise Failed(f"{' '.join(line)}\nexit {running.returncode}\n{stdout}{stderr}")
        return subprocess.CompletedProcess(line, 0, stdout, stderr)

    def behave(self, line, options=None, env=None, before=None):
        environment = dict(os.environ, **(env or {}))
        environment.pop("LEEWARD_PROFILE", None)
        if options:
            environment["LEEWARD_PROFILE"] = options
        done = self.call(line, env=environment, preexec_fn=before)
        if "right" not in done.stdout or "leeward:" in done.stderr:
            raise Failed(f"{' '.join(line)} said: {done.stdout}{done.stderr}")

    def decode(self, folder):
        return self.call([sys.executable, os.path.join(HERE, "decode.py"), folder]).stdout

    def recorded(self, line, options, patterns, env=None):
        """Runs until a trace matches all patterns (ATTEMPTS at most); returns that trace's text."""
        for attempt in range(ATTEMPTS):
            folder = os.path.join(self.tmp, "trace")
            shutil.rmtree(folder, ignore_errors=True)
            self.behave(line, f"on,dir={folder},{options}", env)
            text = self.decode(folder)
            absent = [p for p in patterns if not re.search(p, text, re.M)]
            if not absent:
                return text
        raise Failed(f"{' '.join(line)}: not in the trace: {absent}\n{text[:4000]}")


def ask(pid, line, ended=lambda: False):
    """Sends a command to the program's socket; gives up as soon as the program has ended."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(20)
    # The run-time's thread may not listen yet.
    for attempt in range(200):
        try:
            peer.connect(f"\0leeward-profile-{pid}")
            break
        except ConnectionRefusedError:
            if attempt == 199 or ended():
                raise
            time.sleep(0.05)
    peer.sendall(line.encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        part = peer.recv(4096)
        if not part:
            break
        answer += part
    peer.close()
    return answer.decode().strip()
