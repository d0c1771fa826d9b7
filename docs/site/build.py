#!/usr/bin/env python3
"""Builds the site: target/site from the documents, and checks its links.

Run by `make docs` in the virtual environment that `scripts/setup docs` makes.
"""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import prose
from stage import PAGES, ROOT, Stage, documents

HERE = Path(__file__).resolve().parent


def check_results():
    """Each page of results stands in their index."""
    folder = ROOT / "docs" / "results"
    index = (folder / "README.md").read_text()
    missing = [path.name for path in sorted(folder.glob("*.md")) if path.name != "README.md" and f"]({path.name})" not in index]
    if missing:
        raise SystemExit(f"docs: docs/results/README.md does not list {', '.join(missing)}")


def main():
    check_results()
    shutil.rmtree(PAGES, ignore_errors=True)
    stage = Stage(prose.terms_of((ROOT / "docs" / "glossary.md").read_text()))
    for document in documents():
        change = pages.front if document == Path("README.md") else lambda text: text
        stage.document(document, change)
    stage.follow()
    stage.write(Path("gallery.md"), pages.gallery())
    stage.write(Path("verdicts-table.md"), pages.table_of_verdicts())
    stage.write(Path("report.md"), pages.report())
    shutil.copytree(HERE / "assets", PAGES / "site")
    # JSON is YAML: no need for a library that writes it.
    config = PAGES.parent / "mkdocs.yml"
    nav = pages.navigation([page.as_posix() for page in stage.written])
    config.write_text(f"INHERIT: {HERE / 'mkdocs.yml'}\ndocs_dir: {PAGES}\nsite_dir: {ROOT / 'target' / 'site'}\nhooks: [{HERE / 'hook.py'}]\nnav: {json.dumps(nav, ensure_ascii=False)}\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--clean", "--config-file", config]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    if done.returncode:
        print("\n".join(line for line in done.stdout.splitlines() if not line.startswith("INFO")), file=sys.stderr)
        raise SystemExit("docs: the site was not built; each WARNING above names a page and what is wrong in it")
    print(f"{ROOT / 'target' / 'site' / 'index.html'}: {len(stage.written)} pages")


main()
