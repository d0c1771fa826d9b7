"""One case: start, measure, plant, ask, measure, judge, clean up."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import facts
from client import Client, baseline, latencies, share
from machine import CannotPlant, private_resolver
from process import busy_seconds, cpu_seconds, end, end_all, start
from service import LIMIT_SECONDS, Skipped, free_port, request, start_service

HERE = pathlib.Path(__file__).resolve().parent
HURTS = 5           # times the healthy latency
ANSWER_SECONDS = 5
NAMES = {"cpu", "quota", "lock", "disk", "downstream", "dns", "pauses", "stopped", "accept", "none",
         "unknown"}
# Of its own, so that two examinations at a time do not share a name server.
RESOLVER = f"127.53.{os.getpid() >> 8 & 255}.{os.getpid() & 255 | 1}"
BACKEND = "127.0.0.9"


def examine(case, programs, machine, options):
    """Runs one case; returns its row of results, with the verdict."""
    row = {"case": case.name, "fault": case.fault, "language": case.language,
           "accepts": list(case.accepts)}
    try:
        plant_and_ask(case, programs, machine, options, row)
        row["verdict"] = judge(case, row)
    except Skipped as reason:
        row.update(verdict="skipped", sentence=f"{case.language}: {reason}")
    except (CannotPlant, OSError, ValueError, subprocess.SubprocessError) as reason:
        row.update(verdict="not planted", sentence=f"{type(reason).__name__}: {reason}")
    finally:
        end_all()
        machine.release()
    return row


def plant_and_ask(case, programs, machine, options, row):
    """Starts the service, plants the fault, asks the program, and measures; fills `row`."""
    command = programs.command(case.server)
    settings, wrap, group, helper = dict(case.settings), None, None, None
    if case.needs == "quota":
        group = machine.quota(0.3)
    elif case.needs == "disk":
        settings["DATA"], group = machine.slow_disk(60)
    elif case.needs == "backend":
        port = free_port()
        settings["BACKEND"] = f"{BACKEND}:{port}"
        helper = start([sys.executable, HERE / "backend.py", BACKEND, str(port),
                        str(case.backend_ms)], limit=LIMIT_SECONDS)
        time.sleep(0.5)
    elif case.needs == "resolver":
        settings["NAME"] = "stock.example.internal"
        file = machine.resolver_file(RESOLVER)
        helper = start([sys.executable, HERE / "resolver.py", RESOLVER], limit=LIMIT_SECONDS,
                       stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        if helper.poll() is not None:
            raise CannotPlant("the resolver: " + helper.stderr.read().strip().split("\n")[-1])

        def wrap(command):
            return private_resolver(file, command)
    elif case.needs == "files":
        def wrap(command):
            return ["sh", "-c", 'ulimit -n 24 && exec "$@"', "sh", *command]

    service, port = start_service(command, case.mode, settings,
                                  machine.folder / "service.err", wrap=wrap, group=group,
                                  nice=-10 if case.own_share else 0)
    row["baseline_p50_ms"], row["baseline_p90_ms"] = baseline(machine.folder, port,
                                                              case.baseline)

    held = [request(port, "/price/1") for _ in range(case.hold)]
    if held:
        time.sleep(0.5)  # accepted before the others come
    if case.plant == "collect":
        held.append(request(port, "/collect"))
    if case.plant == "signal":
        helper.send_signal(signal.SIGUSR1)
    beside = second_client(case, machine.folder, port)
    client = Client(machine.folder, "main", port, case.rate, connections=case.connections,
                    seconds=case.settle + 40)
    time.sleep(case.settle)
    if case.plant == "stop":
        os.kill(service.pid, signal.SIGSTOP)
        time.sleep(2)
    first, cpu, busy = time.monotonic(), cpu_seconds(service.pid), busy_seconds()
    if options.facts:
        folder = pathlib.Path(options.facts)
        folder.mkdir(parents=True, exist_ok=True)
        seen = folder / (case.name.replace("/", "-") + ".txt")
        seen.write_text(facts.snapshot(service.pid, port, [group] if case.needs == "quota" else []))
    ask(options.leeward, port, row)
    time.sleep(max(0, first + 5 - time.monotonic()))
    last = time.monotonic()
    row["service_cpus"] = round((cpu_seconds(service.pid) - cpu) / (last - first), 2)
    row["machine_cpus"] = round((busy_seconds() - busy) / (last - first), 2)
    times = latencies(*client.stop(), first, last)
    row["requests"] = len(times)
    for name, part in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99)):
        row[name] = share(times, part)
    if options.facts:
        with open(seen, "a", encoding="utf-8") as file:
            file.write(f"# clients and CPU use: {json.dumps(row, default=str)}\n")
    if beside:
        if beside.process.poll() is not None:
            raise CannotPlant("the second client ended by itself")
        end(beside.process)
    for connection in held:
        connection.close()


def second_client(case, folder, port):
    """The client beside the measured one; None if the case has none."""
    if case.beside == "slow-readers":
        return Client(folder, "beside", port, 8, connections=8, path="/large", read_bytes=16384,
                      receive_buffer=65536, read_pause=0.05)
    if case.beside == "polls":
        return Client(folder, "beside", port, 100, connections=60, path="/poll")
    return None


def ask(program, port, row):
    """Runs the program under examination and stores its answer about this listener in `row`."""
    start_time = time.monotonic()
    process = start([program, "watch", f"127.0.0.1:{port}", "--once", "--json"],
                    limit=4 * ANSWER_SECONDS, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate()
    row["seconds"] = time.monotonic() - start_time
    end(process)
    try:
        listeners = json.loads(out)["listeners"]
        mine = [one for one in listeners if one["address"].endswith(f":{port}")]
        row["got"], row["sentence"] = mine[0]["cause"], mine[0]["sentence"]
        row["answer"] = mine[0]
        if row["got"] not in NAMES:
            row["sentence"] = f"(a name outside of the contract) {row['sentence']}"
    except (ValueError, KeyError, IndexError, TypeError):
        row["got"] = "no answer"
        row["sentence"] = err.decode(errors="replace").strip()[-200:] or f"printed {out[:100]!r}"


def judge(case, row):
    """Verdict of a case; see the README."""
    part = "p90" if case.fault == "pauses" else "p50"
    baseline_ms, now_ms = row[f"baseline_{part}_ms"], row[f"{part}_ms"]
    if baseline_ms is None or now_ms is None:
        return "not planted"
    if (now_ms >= HURTS * baseline_ms) == case.healthy:
        return "not planted"
    if row["seconds"] > ANSWER_SECONDS:
        row["sentence"] = f"(too late) {row['sentence']}"
        return "wrong"
    if row["got"] in case.accepts:
        return "right"
    return "not known" if row["got"] == "unknown" else "wrong"
