"""Pages that no document has: front page, gallery, table of verdicts, navigation.

Contains no drawing and no copying of documents.
"""
import re
from html import escape

import figures
from sources import ROOT, cells, paper_of, verdicts

DOORS = (
    ("doors-service", "rust", "middleware.md", "The guide for axum, hyper and tonic"),
    ("doors-overload", "sh", "scenarios.md", "The guide to scenarios"),
    ("doors-tail", "sh", "profile.md", "The guide to the profiler"),
)


def drawn(figure, heading=""):
    """A figure with its caption and the command of its data."""
    head = f"<h3 id=\"{figure.id}\">{escape(heading)}</h3>\n" if heading else ""
    return (
        f'<figure class="chart">\n{head}{figure.picture}\n<figcaption><p>{escape(figure.caption)}</p>'
        f'<p class="made"><code>{escape(figure.command)}</code></p><p class="made">Data: <code>{escape(figure.source)}</code></p></figcaption>\n</figure>\n'
    )


def section(readme, number):
    match = re.search(rf"^## {number}\. (.+?)\n(.*?)(?=^## )", readme, re.M | re.S)
    if not match:
        raise SystemExit(f"README.md has no section '## {number}. …': the front page takes its doors from there")
    return match[1], match[2]


def front(readme):
    """README.md with a door in front of each of its first three sections."""
    said = {
        "doors-service": service_number(), "doors-overload": claims_number(), "doors-tail": tail_number(),
    }
    cards = []
    for at, (identity, language, guide, words) in enumerate(DOORS):
        title, body = section(readme, at + 1)
        blocks = re.findall(r"^```(\w+)[^\n]*\n(.*?)^```", body, re.M | re.S)
        code = next((code for found, code in blocks if found == language), blocks[0][1])
        code = "\n".join(line.split("  //")[0].split("     #")[0].rstrip() for line in code.strip().splitlines() if "leeward" in line)
        anchor = f"{at + 1}-" + re.sub(r"[^\w ]", "", title).lower().replace(" ", "-")
        figure = figures.figure(identity)
        number, means = said[identity]
        cards.append(
            f'<section class="door" markdown="1">\n<h2><a href="#{anchor}">{escape(title)}</a></h2>\n'
            f'<p class="number"><strong>{number}</strong> {means}</p>\n{figure.picture}\n'
            f'\n```{language}\n{code}\n```\n\n[{words}](docs/{guide})\n\n</section>\n'
        )
    title = re.match(r"# (.+?)\n+\*\*(.+?)\*\*", readme, re.S)
    rest = readme[title.end():].lstrip()
    hero = f'# {title[1]}\n\n<p class="promise">{escape(" ".join(title[2].split()))}</p>\n\n'
    return "---\nhide: [navigation, toc]\n---\n" + hero + '<div class="doors" markdown="1">\n\n' + "\n".join(cards) + "\n</div>\n\n" + rest


def service_number():
    rows, _ = figures.table("| | responses within 50 ms | p99 of the responses |")
    return rows[1][1].strip("*"), f"within 50 ms at twice the load; {rows[0][1].strip('*')} without the line"


def claims_number():
    counts = [sum(column) for column in zip(*(figures.counts(figures.of_papers(s)) for s in verdicts()["scenarios"]))]
    return f"{counts[0]} of {sum(counts)}", f"claims of five papers reproduced as published; {counts[1]} not, {counts[2]} undecided, {counts[3]} not measured"


def tail_number():
    values = re.findall(r"([\d.]+) ms<", figures.figure("doors-tail").picture)
    return f"{values[1]} of {values[0]} ms", "that a slow request takes are a wait for one mutex; the profiler names the thread that holds it"


def gallery():
    text = "# Gallery\n\nEach figure, with the command that made its data. A cross is a number that the paper gives.\n\n"
    shown = "".join(drawn(figure, figure.title) for figure in figures.all_figures() if not figure.id.startswith("doors-"))
    text += f'<div class="gallery">\n{shown}</div>\n'
    return '---\nhide: [toc]\n---\n' + text


def report():
    """The text of the report, with its figures; `make report` prints the same."""
    text = figures.counted((ROOT / "docs" / "report" / "report.md").read_text())

    def several(match):
        shown = "".join(drawn(figures.figure(identity), figures.figure(identity).title) for identity in match[1].split())
        return f'<div class="gallery">\n{shown}</div>'

    return re.sub(r"^\{\{(.+?)\}\}$", several, text, flags=re.M)


def table_of_verdicts():
    rows = []
    for scenario in verdicts()["scenarios"]:
        for claim in scenario["claims"]:
            # Our own claims are judged on our controllers, the papers' on published algorithms.
            published, extended = claim["published"], claim.get("extended") or {}
            if claim["ours"] and extended:
                published, extended = extended, {}
            verdict = published["verdict"].replace("not_applicable", "not_measured").replace("_", " ")
            more = (extended.get("verdict") or "").replace("not_applicable", "not_measured").replace("_", " ")
            paper = "ours" if claim["ours"] else paper_of(scenario["source"])
            settled = [side["after_s"] for side in published.get("settling", []) if side.get("settled")]
            after = f"{max(settled):.2f} s" if settled else ""
            columns = [
                ("scenario", f"<code>{scenario['id']}</code>", scenario["id"]), ("paper", paper, paper),
                ("claim", escape(published["text"]), published["text"]), ("the paper says", escape(published["paper"]), published["paper"]),
                ("measured", escape(published["measured"]), published.get("value") if published.get("value") is not None else ""),
                ("accepted", escape(published["accepted"]), published["accepted"]),
                ("verdict", f'<span class="verdict">{verdict}</span>', verdict), ("with our additions", more, more),
                ("settled after", after, max(settled) if settled else ""),
            ]
            cells_of = "".join(f'<td data-label="{label}" data-value="{escape(str(key), quote=True)}">{words}</td>' for label, words, key in columns)
            rows.append(f'<tr data-verdict="{verdict}" data-paper="{paper}">{cells_of}</tr>')
    head = "".join(f'<th scope="col"><button type="button">{label}</button></th>' for label, *_ in columns)
    papers = sorted({paper_of(scenario["source"]) for scenario in verdicts()["scenarios"]} | {"ours"})
    options = lambda names: "".join(f"<option>{name}</option>" for name in names)  # noqa: E731
    made = escape(verdicts()["command"])
    return (
        "---\nhide: [toc, navigation]\nsearch:\n  exclude: true\n---\n# Verdicts\n\nEach claim of the papers, and each of ours, judged by simulation. "
        "[How a claim is judged](docs/verdicts.md) · "
        f"made by `{made}`\n\n" + drawn(figures.figure("claims-by-paper")) +
        '\n<form id="verdict-filter" class="filter"><label>Contains <input type="search" name="words" autocomplete="off"></label>'
        f'<label>Paper <select name="paper"><option value="">all</option>{options(papers)}</select></label>'
        f'<label>Verdict <select name="verdict"><option value="">all</option>{options(figures.NAMES)}</select></label>'
        f'<output id="verdict-count">{len(rows)} of {len(rows)} claims</output></form>\n\n'
        f'<div class="verdicts"><table id="verdict-table"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>\n'
    )


def navigation(pages):
    """The groups of docs/README.md; pages that it does not list come last."""
    groups, current, listed = [], None, set()
    for line in (ROOT / "docs" / "README.md").read_text().splitlines():
        head = re.match(r"#{2,3} (.+)", line)
        bold = re.match(r"\| \*\*(.+?)\*\* \|", line)
        if head or bold:
            current = ((head or bold)[1], [])
            groups.append(current)
            continue
        if not line.startswith("|") or current is None:
            continue
        for target in re.findall(r"\]\(([^)#]+\.md)(?:#[^)]*)?\)", cells(line)[-1]):
            page = re.sub(r"^docs/\.\./", "", f"docs/{target}")
            if page in pages and page not in listed:
                listed.add(page)
                current[1].append(page)
    decisions = sorted((page for page in pages if page.startswith("docs/decisions/")), key=lambda page: (page.rsplit("/", 1)[1] != "README.md", int((re.match(r"\d+", page.rsplit("/", 1)[1]) or ["999"])[0])))
    results = [page for page in pages if page.startswith("docs/results/")]
    fixed = {"index.md", "report.md", "gallery.md", "verdicts-table.md", "docs/README.md", "docs/getting-started.md", "docs/glossary.md", *decisions, *results}
    nav = [{"Home": "index.md"}, {"Start": ["docs/getting-started.md", "docs/README.md", "docs/glossary.md"]}]
    guides = [{name: [page for page in pages_of if page not in fixed]} for name, pages_of in groups]
    guides = [group for group in guides if next(iter(group.values()))]
    rest = [page for page in pages if page not in listed and page not in fixed and (page.startswith("docs/") or "/" not in page) and page.count("/") < 2 and not re.search(r"\.\w+\.md$", page)]
    nav.append({"Guides": [*guides, *([{"More": rest}] if rest else [])]})
    # The index comes first: it is what the tab opens.
    own = [{"Report": "report.md"}, {"Table of verdicts": "verdicts-table.md"}, {"Gallery": "gallery.md"}]
    more = ["docs/results/README.md", *own, *sorted(page for page in results if not page.endswith("/README.md"))]
    nav += [{"Results": more}, {"Decisions": decisions}]
    return nav
