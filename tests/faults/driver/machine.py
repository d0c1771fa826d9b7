"""What a fault needs of the machine, made and taken back: cgroups, a slow disk, a private resolver.

`Machine` is a context: whatever it made is gone after it, also after a failure. What a driver left
behind that was killed with SIGKILL is removed by the next one (`sweep`).
"""
import os
import pathlib
import signal
import subprocess
import tempfile
import time

PREFIX = "leeward-faults-"


class CannotPlant(Exception):
    """This machine does not allow the fault; the text says why."""


def run(*command):
    """Output of a command. Raises CannotPlant if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise CannotPlant(f"{command[0]}: {done.stderr.strip()[:200]}")
    return done.stdout.strip()


def mounts():
    """Lines of this process's mount table: [device, folder, type, options]."""
    return [line.split()[:4] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]


class Machine:
    """Folder, cgroups, mounts and devices of one examination."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX + f"{os.getpid()}-"))
        os.chmod(self.folder, 0o755)
        self.undo = []

    def __enter__(self):
        sweep()
        return self

    def __exit__(self, *_):
        self.release()
        subprocess.run(["rm", "-rf", "--one-file-system", self.folder], check=False)

    def release(self):
        """Takes back what the last case made, in the opposite order."""
        while self.undo:
            retry(self.undo.pop())

    def hierarchy(self, controller):
        """(folder, version) of a mounted cgroup hierarchy with this controller."""
        for _, folder, kind, options in mounts():
            if kind == "cgroup" and controller in options.split(","):
                return pathlib.Path(folder), 1
            if kind == "cgroup2":
                enabled = pathlib.Path(folder, "cgroup.controllers").read_text().split()
                if {"blkio": "io"}.get(controller, controller) in enabled:
                    return pathlib.Path(folder), 2
        folder = self.folder / f"cgroup-{controller}"
        folder.mkdir()
        try:
            run("mount", "-t", "cgroup", "-o", controller, PREFIX + "cgroup", folder)
            version = 1
        except CannotPlant:
            run("mount", "-t", "cgroup2", PREFIX + "cgroup", folder)
            version = 2
        self.undo.append(folder.rmdir)
        self.undo.append(lambda: run("umount", folder))
        return folder, version

    def group(self, controller, files_v1, files_v2):
        """Makes a cgroup with these limits (file name: content); returns its folder."""
        parent, version = self.hierarchy(controller)
        if version == 2:
            name = {"blkio": "io"}.get(controller, controller)
            (parent / "cgroup.subtree_control").write_text(f"+{name}")
        group = parent / f"{PREFIX}{os.getpid()}"
        try:
            group.mkdir()
            self.undo.append(group.rmdir)
            for name, content in (files_v1 if version == 1 else files_v2).items():
                (group / name).write_text(content)
        except OSError as error:
            raise CannotPlant(f"cgroup {controller}: {error}") from error
        return group

    def quota(self, cpus):
        """A cgroup with a CPU quota, in periods of 100 ms."""
        run_time = str(int(cpus * 100000))
        return self.group("cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": run_time},
                          {"cpu.max": f"{run_time} 100000"})

    def slow_disk(self, writes_per_second):
        """A file system of its own on a loop device, and a cgroup whose members may do so many
        write operations on it in a second. Returns (folder, cgroup).

        Its own file system, because a throttled write holds up the journal, and with it every
        other program's `fsync`. device-mapper's `delay` would do as well, where the kernel has it.
        """
        image, folder = self.folder / "disk.img", self.folder / "disk"
        with open(image, "wb") as file:
            file.truncate(64 << 20)
        device = run("losetup", "--find", "--show", image)
        self.undo.append(image.unlink)
        self.undo.append(lambda: run("losetup", "--detach", device))
        run("mkfs.ext4", "-q", device)
        folder.mkdir()
        run("mount", device, folder)
        self.undo.append(folder.rmdir)
        self.undo.append(lambda: run("umount", folder))
        # Blocks that exist: the journal has no part in writing them again.
        for i in range(64):
            (folder / f"journal-{i}").write_bytes(b"\0" * 4096)
        os.sync()
        number = os.stat(device).st_rdev
        number = f"{os.major(number)}:{os.minor(number)}"
        group = self.group("blkio",
                           {"blkio.throttle.write_iops_device": f"{number} {writes_per_second}"},
                           {"io.max": f"{number} wiops={writes_per_second}"})
        return folder, group

    def resolver_file(self, address):
        """A resolv.conf of the service's own; `private_resolver` puts it in place."""
        file = self.folder / "resolv.conf"
        file.write_text(f"nameserver {address}\noptions timeout:2 attempts:2\n")
        return file


def private_resolver(file, command):
    """The command, run in a mount namespace of its own where `file` is /etc/resolv.conf."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c",
            'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"', "sh", str(file), *command]


def sweep():
    """Removes cgroups, mounts, loop devices and folders of drivers that no longer run."""
    def dead(name):
        """True for a name with the process id of a driver that has ended."""
        pid = name[len(PREFIX):].split("-")[0]
        return name.startswith(PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}")

    for device, folder, kind, _ in reversed(mounts()):
        if kind.startswith("cgroup"):
            for group in pathlib.Path(folder).glob(PREFIX + "*"):
                if dead(group.name):
                    retry(lambda: empty_and_remove(group))
        if any(dead(part) for part in pathlib.Path(folder).parts):
            # A service that dies in a throttled write keeps the mount busy until that is done.
            retry(lambda: run("umount", folder))
            if device.startswith("/dev/loop"):
                subprocess.run(["losetup", "--detach", device], capture_output=True, check=False)
    for folder in pathlib.Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        if dead(folder.name):
            subprocess.run(["rm", "-rf", "--one-file-system", folder], check=False)


def empty_and_remove(group):
    """Kills all processes of a cgroup, and removes it."""
    for pid in (group / "cgroup.procs").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    group.rmdir()


def retry(what, seconds=10):
    """Tries until it works; after that time its last error is printed, and nothing else stops."""
    end = time.monotonic() + seconds
    while True:
        try:
            return what()
        except (OSError, CannotPlant) as error:
            if time.monotonic() > end:
                return print(f"examine: cleaning up: {error}", flush=True)
        time.sleep(0.2)
