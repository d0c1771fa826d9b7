#!/usr/bin/env python3
"""Writes the report: target/report/leeward.pdf, printed by Chromium from report.md.

Run by `make report`. Fails if the PDF has more pages than it may have. Contains no words of it.
"""
import os
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

import markdown

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))
import figures

OUT = ROOT / "target" / "report"
PAGES = 12


def drawn(match):
    """One figure, or several side by side, numbered in turn."""
    parts = []
    for identity in match[1].split():
        drawn.number += 1
        found = figures.figure(identity)
        parts.append(
            f'<figure>{found.picture}<figcaption><b>Figure {drawn.number}.</b> {escape(found.title)}. {escape(found.caption)} '
            f'<span class="made"><code>{escape(found.command)}</code>, in <code>{escape(found.source)}</code></span></figcaption></figure>'
        )
    return f'<div class="row n{len(parts)}">{"".join(parts)}</div>'


drawn.number = 0


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    text = figures.counted((HERE / "report.md").read_text())
    text = re.sub(r"^\{\{(.+?)\}\}$", drawn, text, flags=re.M)
    body = markdown.markdown(text, extensions=["tables", "md_in_html", "attr_list", "smarty"])
    styles = "".join(path.read_text() for path in (ROOT / "docs/site/assets/figure.css", HERE / "report.css"))
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Leeward: what is new</title><style>{styles}</style>{body}</html>'
    html, pdf = OUT / "leeward.html", OUT / "leeward.pdf"
    html.write_text(page)
    browser = os.environ.get("CHROMIUM") or "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--no-pdf-header-footer", f"--print-to-pdf={pdf}", html.as_uri()]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    if done.returncode or not pdf.exists():
        raise SystemExit(f"report: {browser} printed nothing\n{done.stdout}")
    count = len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf.read_bytes()))
    print(f"{pdf}: {count} pages")
    if not 1 <= count <= PAGES:
        raise SystemExit(f"report: {count} pages; at most {PAGES} are accepted")


main()
