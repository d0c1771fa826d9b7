"""The cases: which service, what is planted, and which answers are right.

Rates are requests per second. A case without `accepts` of "none" has to hurt its clients to count,
one with it must not (see examine: "not planted").
"""
import dataclasses
import os

# Milliseconds of CPU for which 560 requests per second are 1.4 times all CPUs of this machine.
ALL_CPUS_MS = 2.5 * (os.cpu_count() or 1)


@dataclasses.dataclass(frozen=True)
class Case:
    """A service, its load, the planted fault, and the right answers."""

    fault: str
    language: str
    server: str                # the key of examine's table of programs
    mode: str                  # what its handlers do
    accepts: tuple             # right answers, the best one first
    rate: float
    baseline: float            # rate before the fault is planted
    connections: int = 50
    settings: dict = dataclasses.field(default_factory=dict)
    needs: str = ""            # quota, disk, backend, resolver, files
    plant: str = ""            # "", stop, signal (to the helper), collect (a request)
    hold: int = 0              # idle keep-alive connections, opened when the fault is planted
    beside: str = ""           # slow-readers, polls: a second client beside the measured one
    settle: float = 3          # seconds of load before the program looks
    backend_ms: int = 500      # the slow backend's answer; 0: never
    healthy: bool = False
    own_share: bool = False    # others on a busy machine do not take its CPU

    @property
    def name(self):
        """Fault and language, as `--only` takes them."""
        return f"{self.fault}/{self.language}"


def healthy(fault, language, server, mode="plain", accepts=("none",), **more):
    """A service without a fault."""
    # It has a higher priority, so that a busy machine does not make it slow. Except `background`,
    # which burns all CPU: it would take the machine.
    return Case(fault, language, server, mode, accepts, healthy=True, baseline=20,
                own_share=fault != "background", **more)


def cases():
    """All cases."""
    # 1. CPU: the handlers' work is 1.4 times what the CPUs (or the one thread, the one
    # interpreter lock) can do.
    everything, one = {"COST_MS": ALL_CPUS_MS}, {"COST_MS": 5}
    yield Case("cpu", "c", "c/pool", "plain", ("cpu",), 560, 30, settings=everything)
    yield Case("cpu", "go", "go", "plain", ("cpu",), 560, 30, settings=everything)
    yield Case("cpu", "python", "python/threads", "plain", ("cpu",), 270, 15, settings=one)
    yield Case("cpu", "python-asyncio", "python/streams", "plain", ("cpu",), 280, 15, settings=one)
    yield Case("cpu", "node", "node", "plain", ("cpu",), 280, 15, settings=one)

    # 2. Quota: 0.3 CPUs allowed, 0.45 wanted.
    for language, server in (("c", "c/pool"), ("go", "go"), ("python", "python/threads"),
                             ("python-asyncio", "python/streams"), ("node", "node")):
        yield Case("quota", language, server, "plain", ("quota",), 90, 8, needs="quota",
                   settings=one)

    # 3. Lock: one mutex, held for 20 ms without CPU: 50 a second at most.
    held = {"COST_MS": 20}
    yield Case("lock", "c", "c/threads", "lock", ("lock",), 75, 8, settings=held)
    yield Case("lock", "c-pool", "c/pool", "lock", ("lock",), 75, 8,
               settings={"COST_MS": 20, "WORKERS": 8})
    yield Case("lock", "go", "go", "lock", ("lock",), 75, 8, settings=held)
    yield Case("lock", "python", "python/threads", "lock", ("lock",), 75, 8, settings=held)
    yield Case("lock", "node", "node", "lock", ("lock",), 75, 8, settings=held)

    # 4. Disk: each request is a page and an fdatasync, two writes; 60 writes a second allowed.
    for language, server in (("c", "c/pool"), ("go", "go"), ("python", "python/threads"),
                             ("node", "node")):
        yield Case("disk", language, server, "disk", ("disk",), 60, 5, needs="disk")

    # 5. Downstream: a TCP backend that answers after 500 ms, or never.
    for language, server in (("c", "c/threads"), ("go", "go"), ("python", "python/threads"),
                             ("python-asyncio", "python/streams"), ("node", "node")):
        yield Case("downstream", language, server, "downstream", ("downstream",), 60, 20,
                   needs="backend", plant="signal")
    for language, server in (("c", "c/pool"), ("go", "go"), ("python", "python/threads")):
        yield Case("downstream-never", language, server, "downstream", ("downstream",), 30, 20,
                   needs="backend", plant="signal", backend_ms=0)

    # Four calls at a time are 50 a second. Each is short beside the wait for its turn.
    yield Case("pool", "go", "go", "downstream", ("downstream",), 80, 20, needs="backend",
               plant="signal", backend_ms=80, settings={"POOL": 4})

    # 6. DNS: the resolver swallows the queries. Go asks it by itself, the others by libc.
    for language, server in (("c", "c/threads"), ("go", "go"), ("python", "python/threads"),
                             ("python-asyncio", "python/streams"), ("node", "node")):
        yield Case("dns", language, server, "dns", ("dns",), 30, 10, needs="resolver",
                   plant="signal")

    # 7. Collections that stop all handlers. C has no collector: a thread walks the heap under a
    # world lock, so "lock" is right as well. Go's collector hardly pauses: it competes for the CPUs
    # with the handlers, so there "cpu" is right as well (the README has the measurement).
    work = {"COST_MS": 1}
    yield Case("pauses", "c", "c/pool", "pauses", ("pauses", "lock"), 60, 20, plant="collect",
               settings=work, settle=4)
    yield Case("pauses", "go", "go", "pauses", ("pauses", "cpu"), 100, 20, plant="collect",
               settings=work, settle=8)
    yield Case("pauses", "java", "java", "pauses", ("pauses",), 60, 20, plant="collect", settle=8)
    yield Case("pauses", "python", "python/threads", "pauses", ("pauses",), 60, 20,
               plant="collect", settings=work, settle=8)
    yield Case("pauses", "node", "node", "pauses", ("pauses",), 60, 20, plant="collect",
               settings=work, settle=8)

    # 8. Stopped: SIGSTOP in the middle of the load.
    for language, server in (("c", "c/pool"), ("go", "go"), ("python", "python/streams"),
                             ("node", "node")):
        yield Case("stopped", language, server, "plain", ("stopped",), 60, 20, plant="stop")

    # 9. Accept: four connections are served at a time, four idle ones are held. Node accepts
    # whatever comes (its `maxConnections` closes the others), so it has no such fault.
    for language, server, settings in (("c", "c/threads", {"WORKERS": 4}),
                                       ("go", "go", {"LIMIT": 4}),
                                       ("python", "python/threads", {"WORKERS": 4})):
        yield Case("accept", language, server, "plain", ("accept",), 40, 20, connections=20,
                   settings=settings, hold=4)
    # The same by the limit of open files (24). Go tries again after a while, Python's accept loop
    # spins: its CPU is a consequence, and more CPUs would change nothing.
    for language, server in (("go", "go"), ("python", "python/threads")):
        yield Case("accept-files", language, server, "plain", ("accept",), 40, 20, connections=20,
                   needs="files", hold=24)

    # 10. Nothing: about 0.4 of one CPU.
    for language, server in (("c", "c/pool"), ("go", "go"), ("python", "python/threads"),
                             ("python-asyncio", "python/streams"), ("node", "node")):
        yield healthy("none", language, server, rate=150, settings={"COST_MS": 2})

    yield from traps()


def traps():
    """Services that a simple rule gets wrong."""
    # A hundred threads wait for a futex, and it means nothing.
    for language, server in (("c", "c/pool"), ("python", "python/threads")):
        yield healthy("idle-threads", language, server, "idle-threads", rate=50)
    # Unsent answers and long requests: the client reads 4 MB slowly.
    for language, server in (("c", "c/threads"), ("go", "go"), ("node", "node")):
        yield healthy("slow-client", language, server, rate=50, beside="slow-readers")
    # A thread of the lowest priority takes what the requests leave.
    for language, server in (("c", "c/pool"), ("go", "go")):
        yield healthy("background", language, server, "background", rate=100)
    # Each request waits for a backend, shortly; what lacks is CPU.
    everything = {"BURN_MS": ALL_CPUS_MS}
    yield Case("busy-caller", "go", "go", "downstream", ("cpu",), 560, 30, needs="backend",
               settings=everything)
    yield Case("busy-caller", "python", "python/threads", "downstream", ("cpu",), 250, 15,
               needs="backend", settings={"BURN_MS": 5})
    yield Case("busy-caller", "node", "node", "downstream", ("cpu",), 280, 15,
               needs="backend", settings={"BURN_MS": 5})
    # 70 % of the one thread, and short queues.
    for language, server in (("c", "c/single"), ("python-asyncio", "python/streams"),
                             ("node", "node")):
        yield healthy("seventy", language, server, rate=190,
                      settings={"COST_MS": 3.5 if language == "c" else 3.2})
    # Sixty requests wait 30 s for news, on purpose; "lock" would be a false alarm.
    for language, server in (("c", "c/threads"), ("go", "go"), ("python", "python/threads"),
                             ("node", "node")):
        yield healthy("long-poll", language, server, accepts=("unknown", "none"), rate=20,
                      beside="polls")
    # A mutex whose holder burns CPU, one core's worth: more cores would not help, so "lock" is
    # the better answer; "cpu" names the work that is to be made shorter.
    yield Case("lock-busy", "c", "c/threads", "lock-busy", ("lock", "cpu"), 150, 10,
               settings={"COST_MS": 10})
    yield Case("lock-busy", "go", "go", "lock-busy", ("lock", "cpu"), 150, 10,
               settings={"COST_MS": 10})
    # 2,000 idle keep-alive connections.
    for language, server in (("c", "c/pool"), ("go", "go"), ("node", "node")):
        yield healthy("idle-connections", language, server, rate=50, hold=2000)
