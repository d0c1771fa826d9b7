"""A recording with `--keep slow` goes on: memory and disk stay flat, and the slow ones are there.

Does not judge the culprit.
"""
import time

from faults import ordinary
from recording import Recording, ask
from trial import matched

# Growth after the first third that counts as flat.
MEMORY_BYTES, DISK_BYTES_PER_SLOW = 8 << 20, 1 << 20


def examine(leeward, service, fault, folder, seconds):
    """Asks for so long, one slow request a second; returns the row."""
    recording = Recording(leeward, service.pid, folder / "kept", "--keep", "slow", "--disk", "64M")
    connection, planted, memory, disk = service.connect(), [], [], []
    begin, turn = time.monotonic(), 0
    try:
        while (elapsed := time.monotonic() - begin) < seconds:
            ordinary(service, connection, turn)
            turn += 1
            if elapsed > len(planted):
                sent = time.time_ns()
                fault.plant(service, connection)
                planted.append((sent, time.time_ns()))
                memory.append(recording.memory())
                disk.append(recording.disk())
        time.sleep(0.5)
        trace = recording.stop()
    except BaseException:
        recording.kill()
        raise
    finally:
        connection.close()
    info = ask(leeward, "info", trace)
    listed = ask(leeward, "requests", trace, "-n", 10_000)
    reported = [(info["wall_start_ns"] + one["start"], one["latency"]) for one in listed["slowest"]]
    third = len(memory) // 3
    grown = max(memory[2 * third:]) - max(memory[:third])
    return {"found": matched(planted, reported), "planted": len(planted), "requests": turn, "memory_mb": max(memory) >> 20,
            "grown_mb": grown / (1 << 20), "disk_mb": max(disk) / (1 << 20),
            "flat": grown <= MEMORY_BYTES and max(disk) <= (64 << 20) + DISK_BYTES_PER_SLOW}
