"""Tests of the driver: threads and processes that end meanwhile, and loads that do not end.

`python3 -m unittest discover tests/faults/driver`
"""
import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import client
import facts
import process

ENDED = "/proc/self/task/0"  # no thread has this id


class Facts(unittest.TestCase):
    def setUp(self):
        tasks = [f"/proc/self/task/{os.getpid()}", ENDED]
        for patch in (mock.patch.object(facts.glob, "glob", lambda _: tasks),
                      mock.patch.object(facts, "shell", lambda _: "")):
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_thread_that_has_ended_is_left_out(self):
        self.assertEqual(list(facts.threads("self")), [os.getpid()])
        unread, where = facts.over_time("self", 1)
        self.assertEqual(sum(where.values()), len(unread))

    def test_unreadable_files_leave_their_columns_empty(self):
        readable = facts.read
        with mock.patch.object(facts, "read", lambda path: None if "schedstat" in str(path)
                               else readable(path)):
            self.assertIn("1 threads over", facts.snapshot("self", 1))
        with mock.patch.object(facts, "read", lambda _: None):
            self.assertIn("(unreadable)", facts.snapshot("self", 1))

    def test_stat_takes_brackets_in_a_name(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "stat").write_text("7 (a) (b) R 1 2", encoding="ascii")
            self.assertEqual(process.stat(folder), ("a) (b", ["R", "1", "2"]))
        self.assertIsNone(process.stat(ENDED))
        with self.assertRaises(ProcessLookupError):
            process.cpu_seconds(0)


class Clients(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(process.end_all)
        self.folder = pathlib.Path(folder.name)
        for name, value in (("LOAD", str(self.folder / "load.py")), ("GRACE_SECONDS", 0.2)):
            patch = mock.patch.object(client, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def start(self, program):
        (self.folder / "load.py").write_text(program, encoding="ascii")
        return client.Client(self.folder, "test", 1, 1)

    def test_a_load_that_does_not_end_is_killed(self):
        load = self.start("import signal, time\n"
                          "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                          "time.sleep(60)\n")
        with self.assertRaises(subprocess.TimeoutExpired):
            load.finish(0)
        self.assertIsNotNone(load.process.poll())
        self.assertEqual(process.RUNNING, [])

    def test_a_load_that_ends_is_read(self):
        load = self.start("import sys\n"
                          "out = open(sys.argv[sys.argv.index('--out') + 1], 'w')\n"
                          "out.write('{\"requests\": [], \"end\": 7}\\n')\n")
        self.assertEqual(load.finish(10), ([], 7))


if __name__ == "__main__":
    unittest.main()
