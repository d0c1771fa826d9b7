"""The sides of a comparison: a revision in its own worktree, the working tree, or a program."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from processes import Unusable, environment, run

ROOT = Path(__file__).resolve().parent.parent.parent
PROFILES = {"dev": ("debug", []), "release": ("release", ["--release"])}


def git(*arguments, folder=ROOT):
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unusable(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def made_by():
    """Hash of these modules. If it changes, results are collected again."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


class Subject:
    """One side: `tree` contains its inputs, `folder` its program and its results."""

    def __init__(self, label, tree, folder, target=None, finished=None):
        self.label, self.tree, self.folder = label, tree, folder
        self.target, self.finished = target, finished
        self.caches = False
        self.programs = {}

    def use(self, profile):
        """Builds the program once. It is named `leeward` on both sides, for equal messages."""
        if profile not in self.programs:
            program = self.folder / "bin" / profile / "leeward"
            program.parent.mkdir(parents=True, exist_ok=True)
            (self.folder / "home").mkdir(exist_ok=True)
            made = self.finished or self.build(profile)
            program.unlink(missing_ok=True)
            program.symlink_to(made)
            self.programs[profile] = program
        self.program = self.programs[profile]
        self.env = environment(self.folder / "home")

    def build(self, profile):
        output, flags = PROFILES[profile]
        command = ["cargo", "build", "--locked", "-p", "leeward", *flags, "--target-dir", str(self.target)]
        done = subprocess.run(command, cwd=self.tree, check=False)
        if done.returncode:
            raise Unusable(f"{self.label} does not build")
        return self.target / output / "leeward"

    def run(self, *arguments, folder, timeout=60):
        """Runs the program; replaces paths of this side in its output by `SIDE`."""
        ended = run([self.program, *arguments], folder, self.env, timeout)
        ended.out, ended.err = self.neutral(ended.out), self.neutral(ended.err)
        return ended

    def neutral(self, text):
        for path in (self.folder, self.program.resolve().parent, self.tree):
            text = text.replace(os.fsencode(path), b"SIDE")
        return text

    def inputs(self, *patterns):
        """Files by patterns of git, as (name, path). Names omit folders, because files may move."""
        listed = git("ls-files", "-z", "-co", "--exclude-standard", "--", *patterns, folder=self.tree).split("\0")
        paths = [self.tree / name for name in sorted(set(listed) - {""}) if (self.tree / name).is_file()]
        named = {}
        for path in sorted(paths, key=lambda path: (path.name, path.read_bytes())):
            name = path.name
            while name in named:
                name += "~"
            named[name] = path
        return sorted(named.items())

    def results(self, part, key):
        """Folder and mark of a part's results, and whether an earlier comparison collected them."""
        folder, mark = self.folder / "results" / part, self.folder / "results" / f"{part}.key"
        done = self.caches and folder.is_dir() and mark.is_file() and mark.read_text() == key
        return folder, mark, done

    def collect(self, part, collect, key, options):
        """Collects the results of a part, unless they exist; returns their folder."""
        folder, mark, done = self.results(part, key)
        if not done:
            mark.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            work = self.folder / "work" / part
            shutil.rmtree(work, ignore_errors=True)
            folder.mkdir(parents=True)
            work.mkdir(parents=True)
            collect(self, folder, work, options)
            shutil.rmtree(work, ignore_errors=True)
            mark.write_text(key)
        return folder


def revision(name, work):
    """The side for a git revision, in a worktree below `work`; for `.` in the working tree."""
    if name == ".":
        return Subject("the working tree", ROOT, work / "working-tree", target=ROOT / "target")
    full = git("rev-parse", "--verify", "--end-of-options", name + "^{commit}").strip()
    folder = work / full[:12]
    tree = folder / "tree"
    if not (tree / ".git").exists():
        folder.mkdir(parents=True, exist_ok=True)
        # By force: a user may have removed an earlier worktree there by other means than git.
        git("worktree", "add", "--force", "--detach", str(tree), full)
    elif git("rev-parse", "HEAD", folder=tree).strip() != full or git("status", "--porcelain", folder=tree).strip():
        raise Unusable(f"{tree} is no longer {name}: remove it with `git worktree remove --force {tree}`")
    subject = Subject(f"{name} ({full[:12]})", tree, folder, target=folder / "target")
    subject.caches = True
    return subject


def finished(program, side, work):
    """The side for an existing program, with the inputs of the working tree."""
    path = Path(program).absolute()
    if not os.access(path, os.X_OK) or path.is_dir():
        raise Unusable(f"{program} is no program")
    return Subject(str(program), ROOT, work / f"{side}-program", finished=path)
