"""Copies documents, and what they link to, into the folder that MkDocs reads.

The folder mirrors the repository, so that links between documents stay as they are. A linked source
file becomes a page with its text. Contains no words of pages.
"""
import re
from pathlib import Path

import prose

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "target" / "docs" / "pages"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
LANGUAGES = {".toml": "toml", ".rs": "rust", ".py": "python", ".sh": "sh", ".json": "json", ".csv": "text", ".yaml": "yaml", ".h": "c", ".c": "c", ".cc": "c++", ".js": "js"}
PICTURES = {".png", ".svg", ".jpg"}
# A page with more text is of no use to readers.
LONGEST_SOURCE = 200_000


def documents():
    """Documents of the site, relative to the root."""
    top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    below = (ROOT / "docs").rglob("*.md")
    ours = (ROOT / "docs" / "site", ROOT / "docs" / "report")
    return [Path(name) for name in top] + sorted(path.relative_to(ROOT) for path in below if not any(path.is_relative_to(folder) for folder in ours))


def page_of(path):
    """The page in which a file of the repository is shown; None for a file that is copied."""
    if (ROOT / path).is_dir():
        return path / "README.md" if (ROOT / path / "README.md").exists() else path / "index.md"
    if path.suffix in PICTURES:
        return None
    if path.suffix == ".md":
        # The front page has this one's text.
        return Path("index.md") if path == Path("README.md") else path
    return path.with_name(path.name + ".md")


def relative(target, folder):
    """A path from `folder` to `target`, both relative to the root."""
    up = 0
    while not (folder == Path(".") or target.is_relative_to(folder)):
        folder, up = folder.parent, up + 1
    return "../" * up + target.relative_to(folder).as_posix()


class Stage:
    """Documents to write, and those that were written."""

    def __init__(self, terms):
        self.terms = terms
        self.queue = []
        self.written = {}

    def links(self, text, document):
        """The text with its links turned to pages; what it links to is queued."""
        folder = document.parent

        def turn(match):
            target, _, heading = match[2].partition("#")
            if "://" in target or target.startswith("mailto:") or not target:
                return match[0]
            path = (ROOT / folder / target).resolve()
            if not path.is_relative_to(ROOT) or not path.exists():
                raise SystemExit(f"{document}: there is no {match[2]}")
            path = path.relative_to(ROOT)
            self.queue.append(path)
            page = page_of(path) or path
            return match[1] + relative(page, folder) + ("#" + heading if heading else "") + match[3]

        return prose.outside_code(text, lambda piece: LINK.sub(turn, piece))

    def write(self, page, text):
        self.written[page] = text
        path = PAGES / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def document(self, document, change=lambda text: text):
        """Writes one Markdown document of the repository."""
        text = (ROOT / document).read_text()
        if document == Path("docs/glossary.md"):
            text = prose.anchor_terms(text)
        else:
            text = prose.link_terms(text, self.terms, relative(Path("docs/glossary.md"), document.parent))
        text = change(text)
        self.write(page_of(document), prose.indent(self.links(text, document)))

    def source(self, path):
        """A page for a source file or folder."""
        page = page_of(path)
        if page is None:
            (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
            (PAGES / path).write_bytes((ROOT / path).read_bytes())
        elif (ROOT / path).is_dir():
            names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in (ROOT / path).iterdir())
            self.write(page, f"# {path}\n\n" + "".join(f"- `{name}`\n" for name in names))
        else:
            text = (ROOT / path).read_text(errors="replace")
            if len(text) > LONGEST_SOURCE:
                text = text[:LONGEST_SOURCE] + "\n…"
            fence = "`" * (1 + max([2, *map(len, re.findall(r"`+", text))]))
            head = "---\nsearch:\n  exclude: true\n---\n"
            self.write(page, f"{head}# {path.name}\n\n`{path}`\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n")

    def follow(self):
        """Writes all that is linked and was not written yet."""
        while self.queue:
            path = self.queue.pop()
            page = page_of(path)
            if page in self.written or (page is None and (PAGES / path).exists()):
                continue
            target = path if page is None or path.suffix == ".md" else page
            if page is not None and page.suffix == ".md" and (ROOT / page).exists():
                self.document(page)
            elif target is not None:
                self.source(path)
