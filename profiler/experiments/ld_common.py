"""Shared by the ld-* scripts. Not a program.

Fetches sources of Debian's packages, builds memcached in several ways, runs it under load, and
writes tables as Markdown and JSON.
"""
import argparse, contextlib, glob, json, os, platform, re, shutil, signal, socket, statistics, subprocess, sys, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

class Stop(Exception):
    """Something is missing, or went wrong: `main` prints it on stderr, without a traceback."""


def parser(description, rounds=None, seconds=None):
    """Makes a parser with the options that all scripts share."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--results", default=os.path.join(ROOT, "target/ld-results"), help="folder for the tables (default: target/ld-results)")
    options.add_argument("--work", default=os.path.join(ROOT, "target/ld-work"),
                         help="folder for sources, builds and traces; builds in it are used again (default: target/ld-work)")
    options.add_argument("--profiler", default=os.environ.get("LEEWARD_PROFILER_DIR", os.path.join(ROOT, "target/profiler")),
                         help="what `make profiler` built (default: $LEEWARD_PROFILER_DIR or target/profiler)")
    options.add_argument("--leeward", default=os.path.join(ROOT, "target/release/leeward"), help="the program (default: target/release/leeward)")
    options.add_argument("--cpus", default="0,1", help="the program's CPU and the profiler's (default: 0,1)")
    if rounds:
        options.add_argument("--rounds", type=int, default=rounds, help=f"kinds take turns so often (default: {rounds})")
    if seconds:
        options.add_argument("--seconds", type=float, default=seconds, help=f"of each measurement, cut into slices where there are any (default: {seconds})")
    return options


def source_option(options, package):
    options.add_argument("--source", help=f"{package}'s source as a tar file, instead of Debian's by apt-get")


def slices_option(options, default):
    options.add_argument("--slices", type=int, default=default,
                         help=f"into which --seconds are cut, so that all kinds see the same moods of the machine (default: {default})")


def memcached_option(options):
    source_option(options, "memcached")
    options.add_argument("--batch", type=int, default=16, help="requests that a connection sends in one go under full load, at most 64 (default: 16)")


def prepare(options):
    """Checks files and folders; adds `llvm`, `mine` and `other` (CPUs) to the options."""
    for name in ("results", "work", "profiler", "leeward"):
        setattr(options, name, os.path.abspath(getattr(options, name)))
    try:
        options.llvm = open(os.path.join(options.profiler, "llvm-version")).read().strip()
    except OSError:
        raise Stop(f"{options.profiler} isn't built: `make profiler`, or name another folder with --profiler")
    if not os.access(options.leeward, os.X_OK):
        raise Stop(f"{options.leeward} isn't there: `cargo build --release`, or name another with --leeward")
    try:
        options.mine, options.other = [int(cpu) for cpu in options.cpus.split(",")]
    except ValueError:
        raise Stop(f"--cpus {options.cpus}: two numbers are wanted, such as 0,1")
    os.makedirs(options.work, exist_ok=True)
    os.makedirs(options.results, exist_ok=True)


def main(body):
    """Runs `body`, and prints its errors without a traceback."""
    # As by Ctrl-C, so that `finally` blocks end child processes and remove temporary files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        body()
    except Stop as reason:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {reason}")
    except KeyboardInterrupt:
        sys.exit(130)


def shell(line, **more):
    done = subprocess.run(line, shell=isinstance(line, str), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)
    if done.returncode != 0:
        raise Stop(f"this failed: {line if isinstance(line, str) else ' '.join(line)}\n{done.stdout[-3000:]}")
    return done.stdout


# ---- sources -------------------------------------------------------------------------------------

def archives(package):
    """The archives of this system's packages, as `deb-src` lines."""
    said = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(SUITE) $(COMPONENT)", "Created-By: Packages"],
                          capture_output=True, text=True)
    lines = [f"deb-src {line}" for line in sorted(set(said.stdout.split("\n"))) if len(line.split()) == 3]
    if not lines:
        raise Stop(f"apt-get names no package archives: give {package}'s source with --source FILE.tar.*")
    return lines


def fetch(work, package):
    """Fetches a package's source from Debian; returns the path of the upstream tar file.

    apt-get keeps package lists in the work folder; the system's are not touched.
    """
    there = glob.glob(os.path.join(work, f"{package}_*.orig.tar.*[z2]"))
    if there:
        return there[0]
    if not shutil.which("apt-get"):
        raise Stop(f"there is no apt-get here: give {package}'s source with --source FILE.tar.*")
    apt = os.path.join(work, "apt")
    for folder in ("lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(apt, folder), exist_ok=True)
    with open(os.path.join(apt, "sources.list"), "w") as file:
        file.write("\n".join(archives(package)) + "\n")
    options = (f"-o Dir::Etc::SourceList={apt}/sources.list -o Dir::Etc::SourceParts=/dev/null "
               f"-o Dir::State::Lists={apt}/lists -o Dir::Cache={apt}/cache -o APT::Sandbox::User=")
    try:
        shell(f"apt-get {options} -q update && apt-get {options} -q source --download-only {package}", cwd=work)
    except Stop as reason:
        raise Stop(f"{package}'s source can't be fetched (give it with --source FILE.tar.*): {reason}")
    found = glob.glob(os.path.join(work, f"{package}_*.orig.tar.*[z2]"))
    if not found:
        raise Stop(f"apt-get fetched no source of {package}: give it with --source FILE.tar.*")
    return found[0]


def is_made(options, stamp, compiler):
    """True if a build is up to date.

    A newer run-time would have to be linked again, which counts as a new build.
    """
    newest = max(os.path.getmtime(f) for f in glob.glob(options.profiler + "/*.[as]*"))
    return os.path.exists(stamp) and ("leeward" not in compiler or os.path.getmtime(stamp) > newest)


def building(options, **more):
    """The environment of a build."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LEEWARD_PROFILE", "MAKEFLAGS")}
    return {**environment, "LEEWARD_PROFILER_DIR": options.profiler, **more}


# ---- memcached -----------------------------------------------------------------------------------

def build_memcached(options, name, compiler, targets="memcached", libs="", cflags="-O2 -g"):
    """Builds memcached with `compiler` in folder `name` if it is not there; returns the folder."""
    folder = os.path.join(options.work, name)
    stamp = os.path.join(folder, f".made-{'-'.join(targets.split())}")
    if is_made(options, stamp, compiler):
        return folder
    if not os.path.exists("/usr/include/event.h") and not os.path.exists("/usr/local/include/event.h"):
        raise Stop("memcached needs libevent's headers: apt-get install libevent-dev")
    source = options.source or fetch(options.work, "memcached")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    environment = building(options, CC=compiler, CFLAGS=cflags, LIBS=libs)
    # All files get the same time. Otherwise make would make `configure` again.
    shell(["tar", "xf", source, "-C", folder, "--strip-components", "1"])
    shell(f"find . -exec touch -r configure.ac {{}} + && ./configure -q && make AUTOCONF=: AUTOMAKE=: ACLOCAL=: AUTOHEADER=: {targets}",
          env=environment, cwd=folder)
    open(stamp, "w").close()
    return folder


def clang(options):
    return f"clang-{options.llvm}"


def build_load(options):
    source, target = os.path.join(ROOT, "profiler/bench/memload.c"), os.path.join(options.work, "memload")
    if not os.path.exists(target) or os.path.getmtime(source) > os.path.getmtime(target):
        shell([clang(options), "-O2", "-D_GNU_SOURCE", source, "-o", target, "-lm"])
    return target


class Server:
    """A memcached with one worker thread on the program's CPU, behind a UNIX socket."""
    serial = 0

    def __init__(self, options, folder, environment, within=()):
        Server.serial += 1
        self.options = options
        self.path = os.path.join(options.work, f"socket-{Server.serial}")
        if os.path.exists(self.path):
            os.remove(self.path)
        line = ["taskset", "-c", str(options.mine), *within, os.path.join(folder, "memcached"), "-s", self.path, "-t", "1", "-m", "256", "-R", "64"]
        if os.geteuid() == 0:
            line += ["-u", "root"]
        complaints = self.path + ".stderr"
        with open(complaints, "w") as file:
            self.running = subprocess.Popen(line, env=running(environment), stdout=subprocess.DEVNULL, stderr=file, cwd=options.work)
        self.pid = self.running.pid
        try:
            self.wait_until_it_listens(f"{folder}/memcached", complaints)
        except BaseException:
            self.stop(signal.SIGKILL)
            raise

    def wait_until_it_listens(self, name, complaints):
        for _ in range(500):
            time.sleep(0.02)
            self.pid = innermost(self.running.pid)
            if os.path.exists(self.path):
                return
            if self.running.poll() is not None:
                break
        raise Stop(f"{name} doesn't start: {last_words(complaints)}")

    def worker(self):
        """CPU nanoseconds and context switches of the worker thread.

        Other threads do not count: memcached's housekeeping and the profiler run without requests,
        too.
        """
        for task in glob.glob(f"/proc/{self.pid}/task/*"):
            try:
                if open(task + "/comm").read().strip() == "mc-worker":
                    switches = sum(int(line.split()[1]) for line in open(task + "/status") if "ctxt_switches" in line)
                    return int(open(task + "/schedstat").read().split()[0]), switches
            except OSError:
                pass
        raise Stop("memcached has no worker thread")

    def load(self, sets, seconds, rate, stored=False):
        """Runs the load on the same CPU; returns costs per operation, rate and latencies (ns).

        Storing the keys beforehand does not count. `stored`: an earlier load stored them.
        """
        line = ["taskset", "-c", str(self.options.mine), os.path.join(self.options.work, "memload"), self.path, "16", str(seconds), str(sets), str(rate), str(self.options.batch)]
        line += ["stored"] if stored else []
        running = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        ready = running.stdout.readline()
        if ready:
            cpu, switches = self.worker()
        words, complaint = running.communicate("\n" if ready else "")
        if running.returncode != 0 or not ready:
            raise Stop(f"the load failed: {complaint}")
        cpu, switches = (after - before for after, before in zip(self.worker(), (cpu, switches)))
        words = words.split()
        answered, length = int(words[0]), float(words[1])
        return {"cpu": cpu / answered, "switches": 1000 * switches / answered, "rate": answered / length, "p50": int(words[2]), "p99": int(words[3]),
                "seconds": length}

    def stop(self, how=signal.SIGTERM):
        end(self.running, self.pid, how)
        for left in (self.path, self.path + ".stderr"):
            if os.path.exists(left):
                os.remove(left)


# ---- running -------------------------------------------------------------------------------------

def running(more):
    """The environment of a program that is measured."""
    return {**{k: v for k, v in os.environ.items() if k not in ("LEEWARD_PROFILE", "XRAY_OPTIONS")}, **more}


def innermost(pid):
    """The innermost child of `pid`, or `pid` itself: `coz run` waits while its child runs."""
    try:
        children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    except OSError:
        return pid
    return innermost(int(children[0])) if children else pid


def end(process, pid, how=signal.SIGTERM):
    """Ends `process`, whose program is `pid`."""
    for target, signal_, patience in ((pid, how, 20), (pid, signal.SIGKILL, 5), (process.pid, signal.SIGKILL, None)):
        if process.poll() is None:
            try:
                os.kill(target, signal_)
                process.wait(patience)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
    process.wait()


def last_words(file):
    """Last line that a program printed, without empty ones."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in open(file, errors="replace")]
    return next((line for line in reversed(lines) if line), "it says nothing")


def size_of(folder):
    return sum(os.path.getsize(f) for f in glob.glob(folder + "/*"))


# ---- numbers and tables --------------------------------------------------------------------------

def middle(values):
    return statistics.median(values)


def spread(values):
    """Lower and upper quartile."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def over(values, reference):
    """Per cent over the reference of the same round: median and quartiles of all rounds."""
    ratios = [100 * (value / base - 1) for value, base in zip(values, reference) if base]
    if not ratios:
        return None
    low, high = spread(ratios)
    return {"median": middle(ratios), "low": low, "high": high}


def percent(one):
    return "" if one is None else f"{one['median']:+.1f} % ({one['low']:+.1f} to {one['high']:+.1f})"


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return f"{model}, {os.cpu_count()} CPUs, Linux {platform.release()}"


class Report:
    """Prints tables, and writes them to NAME.md and NAME.json."""

    def __init__(self, options, name, title):
        self.options, self.name, self.title = options, name, title
        self.began = time.time()
        self.tables, self.notes = [], []

    def table(self, title, columns, rows, data, unit=""):
        """Adds a table. `rows`: lists of texts; `data`: the same as numbers, for the JSON."""
        self.tables.append({"title": title, "columns": columns, "rows": rows, "data": data, "unit": unit})
        self.write()
        print(self.markdown(self.tables[-1]), flush=True)

    def note(self, text):
        self.notes.append(text)
        print(text, flush=True)
        self.write()

    @staticmethod
    def markdown(table):
        texts = [[str(cell) for cell in row] for row in [table["columns"], *table["rows"]]]
        widths = [max(len(row[i]) for row in texts) for i in range(len(texts[0]))]
        lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in texts]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        return f"\n### {table['title']}\n\n" + "\n".join(lines) + "\n"

    def write(self):
        base = os.path.join(self.options.results, self.name)
        about = [f"{machine()}; clang {self.options.llvm}; program on CPU {self.options.mine}, profiler on CPU {self.options.other}; "
                 f"`{' '.join([os.path.basename(sys.argv[0]), *sys.argv[1:]])}`, {time.time() - self.began:.0f} s"]
        with open(base + ".md.new", "w") as file:
            file.write(f"# {self.title}\n\n" + about[0] + "\n" + "".join(self.markdown(t) for t in self.tables))
            file.write("".join(f"\n{note}\n" for note in self.notes))
        with open(base + ".json.new", "w") as file:
            json.dump({"name": self.name, "title": self.title, "about": about[0], "tables": self.tables, "notes": self.notes}, file, indent=1)
        for end in (".md", ".json"):
            os.replace(base + end + ".new", base + end)


# ---- kinds in turns ------------------------------------------------------------------------------

class Kind:
    """A way of building and running a program.

    `profile`: LEEWARD_PROFILE without the folder. `beside`: a command that runs meanwhile.
    `within`: a command that runs the program. FILE in both stands for a path of a log, and PID in
    `beside` for the program.
    """

    def __init__(self, name, build, profile=None, environment=None, beside=None, within=()):
        self.name, self.build, self.profile, self.environment, self.beside, self.within = name, build, profile, environment or {}, beside, within


def compilers(options, language="cc"):
    """By build: compiler of C (`cc`) or C++ (`c++`), flags, and object of ours to link, if any."""
    plain = clang(options) if language == "cc" else f"clang++-{options.llvm}"
    ours = f"{options.leeward} {language}"
    return {
        "clang": (plain, "-O2 -g", ""),
        "leeward": (ours, "-O2 -g", ""),
        "requests": (f"{ours} --leeward-request-fn=process_command_ascii", "-O2 -g", ""),
        "scan": (f"{ours} --leeward-engine=scan", "-O2 -g", ""),
        "functions": (f"{plain} -finstrument-functions-after-inlining", "-O2 -g", "cyg_log"),
        # All functions, as in the other builds, and not only those of 200 instructions.
        "xray": (f"{plain} -fxray-instrument -fxray-instruction-threshold=1", "-O2 -g", ""),
        # Debian's Coz, of 2020, stops at later debug information. Its experiments need something
        # to count.
        "coz": (plain, "-O2 -gdwarf-4 -DWITH_COZ", "coz_answers" if language == "cc" else ""),
    }


def build_object(options, name):
    """Compiles an object of profiler/bench, for C or C++; returns its path."""
    target = os.path.join(options.work, f"{name}.o")
    shell([clang(options), "-O2", "-D_GNU_SOURCE", "-c", os.path.join(ROOT, f"profiler/bench/{name}.c"), "-o", target])
    return target


def build_kinds(options, kinds, language="cc", build=None, trial=None):
    """Builds what the kinds need; returns the kinds that work, and reasons for those left out.

    A kind is left out if it cannot be built, or if its tool does not run. `build`: (options,
    folder's name, compiler, flags, object to link); `trial`: a short run of a kind.
    """
    if build is None:
        build_load(options)
        build = lambda options, name, compiler, flags, linked: build_memcached(options, name, compiler, libs=linked, cflags=flags)
        trial = lambda kind: measure(options, kind, 0, 0.2, 0)
    left, reasons = [], []
    for kind in kinds:
        try:
            compiler, flags, linked = compilers(options, language)[kind.build]
            for tool in ([kind.beside[0]] if kind.beside else []) + list(kind.within[:1]):
                if not shutil.which(tool):
                    raise Stop(f"there is no {tool} here")
            build(options, f"load-{kind.build}", compiler, flags, build_object(options, linked) if linked else "")
            if kind.within:
                trial(kind)
            left.append(kind)
        except Stop as reason:
            if kind.build in ("clang", "leeward"):
                raise
            reasons.append(f"Left out: {kind.name.strip()}: {str(reason).splitlines()[0]}")
    return left, reasons


@contextlib.contextmanager
def beside(options, kind, pid, log, begins):
    """Runs the kind's command beside the program, if it has one, on the profiler's CPU.

    The command has `begins` seconds to begin.
    """
    if not kind.beside:
        yield
        return
    line = [word.replace("PID", str(pid)).replace("FILE", log) for word in kind.beside]
    command = subprocess.Popen(["taskset", "-c", str(options.other), *line], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(begins)
        yield
        if command.poll() is not None:
            raise Stop(f"{kind.name.strip()}: {kind.beside[0]} ended too early")
    finally:
        command.send_signal(signal.SIGINT)
        command.wait()


def run(options, kind, start, load):
    """Makes one run of one kind.

    `start` (environment, command around the program) returns a program with `pid` and `stop`;
    `load` measures it.
    """
    trace, log = os.path.join(options.work, "trace"), os.path.join(options.work, "log")
    for old in glob.glob(trace + "*") + glob.glob(log + "*"):
        shutil.rmtree(old) if os.path.isdir(old) else os.remove(old)
    environment = {key: value.replace("FILE", log) for key, value in kind.environment.items()}
    if kind.profile:
        environment["LEEWARD_PROFILE"] = f"on,cpu={options.other},dir={trace},{kind.profile}"
    program = start(environment, [word.replace("FILE", log) for word in kind.within])
    try:
        with beside(options, kind, program.pid, log, 0.5):
            found = load(program)
    finally:
        program.stop(signal.SIGKILL if kind.build == "xray" else signal.SIGTERM)
    found["bytes"] = size_of(trace) / found["seconds"] if os.path.isdir(trace) else 0
    for old in glob.glob(log + "*"):
        os.remove(old)
    return found


def measure(options, kind, sets, seconds, rate):
    """Makes one run of memcached in one kind."""
    folder = os.path.join(options.work, f"load-{kind.build}")
    return run(options, kind, lambda environment, within: Server(options, folder, environment, within), lambda server: server.load(sets, seconds, rate))


class Waiting:
    """A memcached of one kind that works, and records, only in its turns."""

    def __init__(self, options, kind, sets, rate):
        self.options, self.kind, self.sets, self.rate = options, kind, sets, rate
        self.files = os.path.join(options.work, f"waiting-{Server.serial}")
        self.trace = self.files + ".trace"
        self.remove_files()
        environment = {key: value.replace("FILE", self.files + ".log") for key, value in kind.environment.items()}
        if kind.profile:
            environment["LEEWARD_PROFILE"] = f"wait,cpu={options.other},dir={self.trace},{kind.profile}"
        within = [word.replace("FILE", self.files + ".log") for word in kind.within]
        self.server = Server(options, os.path.join(options.work, f"load-{kind.build}"), environment, within)
        try:
            self.server.load(sets, 0.05, 0)
        except BaseException:
            self.end()
            raise

    def ask(self, what):
        """Sends a command to the run-time, as `leeward profile attach` and `stop` do."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(20)
            line.connect(f"\0leeward-profile-{self.server.pid}")
            line.sendall(what.encode() + b"\n")
            answer = line.recv(8192).decode()
        if not answer.startswith("ok"):
            raise Stop(f"{self.kind.name.strip()}: {what}: {answer.strip()}")

    def take_turn(self, seconds):
        if self.kind.profile:
            self.ask("start")
        with beside(self.options, self.kind, self.server.pid, self.files + ".log", 0.3):
            found = self.server.load(self.sets, seconds, self.rate, stored=True)
        if self.kind.profile:
            self.ask("stop")
        found["bytes"] = size_of(self.trace) / found["seconds"] if os.path.isdir(self.trace) else 0
        self.remove_files()
        return found

    def remove_files(self):
        for old in glob.glob(self.files + ".*"):
            shutil.rmtree(old) if os.path.isdir(old) else os.remove(old)

    def end(self):
        self.server.stop(signal.SIGKILL if self.kind.build == "xray" else signal.SIGTERM)
        self.remove_files()


def in_turns(options, kinds, sets, rate, make=Waiting):
    """Results by kind, of memcached or of another server that `make` starts.

    Each round starts all kinds anew, because a process's place in memory makes it slower or faster.
    Then the kinds take turns in slices, every other time in reverse order. Other work of the
    machine slows all kinds that run at that time.
    """
    results = {kind.name: [] for kind in kinds}
    for _ in range(options.rounds):
        waiting = []
        try:
            for kind in kinds:
                waiting.append(make(options, kind, sets, rate))
            for turn in range(options.slices):
                for one in waiting[::-1] if turn % 2 else waiting:
                    results[one.kind.name].append(one.take_turn(options.seconds / options.slices))
        finally:
            while waiting:
                # If one cannot be ended, the others are ended all the same.
                one = waiting.pop()
                try:
                    one.end()
                except OSError as reason:
                    print(f"{one.kind.name.strip()}: {reason}", file=sys.stderr)
    return results


def take_turns(options, kinds, one):
    """Results of `one` by kind: each round runs all kinds, every other round in reverse order."""
    results = {kind.name: [] for kind in kinds}
    for turn in range(options.rounds):
        for kind in kinds[::-1] if turn % 2 else kinds:
            results[kind.name].append(one(kind))
    return results


def compare(report, title, results, columns, extra=()):
    """Adds a table of medians, each with the per cent over the first kind's of the same round."""
    first = next(iter(results.values()))
    rows, data = [], []
    for name, rounds in results.items():
        row, numbers = [name], {"kind": name.strip()}
        for column, label, form in columns:
            values = [one[column] for one in rounds]
            ratio = over(values, [one[column] for one in first]) if rounds is not first else None
            row += [form.format(middle(values)), percent(ratio)]
            numbers[column] = {"median": middle(values), "values": values, "over first, %": ratio}
            if column == "cpu":
                least = min(values)
                row.append(f"{least:.0f} ({100 * (least / min(one[column] for one in first) - 1):+.1f} %)")
                numbers["least"] = least
        for column, label, form in extra:
            values = [one[column] for one in rounds]
            row.append(form.format(middle(values)))
            numbers[column] = {"median": middle(values)}
        rows.append(row)
        data.append(numbers)
    heads = [""] + [head for column, label, _ in columns for head in
                    ((label, "over the first (quartiles)", "least") if column == "cpu" else (label, "over the first (quartiles)"))] + [label for _, label, _ in extra]
    report.table(title, heads, rows, data)


def pick(kinds, numbers):
    try:
        return [kinds[int(number)] for number in numbers.split(",")] if numbers else kinds
    except (ValueError, IndexError):
        raise Stop(f"--kinds {numbers}: numbers from 0 to {len(kinds) - 1} are wanted")


def list_kinds(kinds):
    return "; ".join(f"{i} {kind.name.strip()}" for i, kind in enumerate(kinds))
