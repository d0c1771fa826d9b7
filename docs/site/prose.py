"""Changes of Markdown that MkDocs needs or the site adds: depth of lists, links to the glossary.

Contains no files and no words of pages.
"""
import re

FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})(.*)$")
ITEM = re.compile(r"^(\s*)([-*+]|\d{1,3}[.)])(\s+)(?=\S)")
INLINE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.S)


def pieces(text):
    """(is_code, text) of the lines in turn: fenced blocks, and what is between them."""
    code, gathered, closing = False, [], ""
    for line in text.splitlines(keepends=True):
        fence = FENCE.match(line.rstrip("\n"))
        if not code and fence:
            yield False, "".join(gathered)
            code, gathered, closing = True, [line], fence[2]
        elif code and fence and fence[2].startswith(closing) and not fence[3].strip():
            yield True, "".join([*gathered, line])
            code, gathered = False, []
        else:
            gathered.append(line)
    yield code, "".join(gathered)


def outside_code(text, change):
    """Applies `change` to the text that is neither in a fenced block nor between backticks."""
    return "".join(piece if is_code else outside_inline(piece, change) for is_code, piece in pieces(text))


def outside_inline(text, change):
    """The links' texts may hold code, so that only whole links pass as one piece."""
    codes = []

    def hide(match):
        codes.append(match[0])
        return f"\x00{len(codes) - 1}\x00"

    changed = change(INLINE.sub(hide, text))
    return re.sub("\x00(\\d+)\x00", lambda match: codes[int(match[1])], changed)


def indent(text):
    """CommonMark's lists for Python-Markdown: four columns a level, blank lines around."""
    out, stack, closing = [], [], None
    for line in text.split("\n"):
        width = len(line) - len(line.lstrip(" "))
        if closing is not None:
            inner, mark = closing
            out.append("    " * len(stack) + line[min(inner, width):] if line.strip() else "")
            if line.strip().startswith(mark) and not line.strip().strip(mark[0]):
                closing = None
                out.append("")
            continue
        if not line.strip():
            out.append("")
            continue
        item = ITEM.match(line)
        is_after_blank = not out or not out[-1].strip()
        if item or is_after_blank or width >= (stack[-1] if stack else 0) or line.startswith("#") or FENCE.match(line):
            while stack and width < stack[-1]:
                stack.pop()
        level = "    " * len(stack)
        fence = FENCE.match(line)
        if item and len(stack) * 4 + 20 > width:
            # A list that interrupts a paragraph: fine for CommonMark, not for Python-Markdown.
            if not is_after_blank and not ITEM.match(out[-1]) and not (stack_before(out, level)):
                out.append("")
            out.append(level + item[2] + item[3][:1].ljust(1) + line[item.end():])
            stack.append(item.end())
            inner = FENCE.match(line[item.end():])
            if inner:
                # Python-Markdown knows no block in the line of a list's number.
                out[-1] = level + item[2] + " <span></span>"
                out += ["", level + "    " + re.sub(r"^(\W+\w+) run(?: \S+)?$", r"\1", inner[0].strip())]
                closing = (item.end(), inner[2])
        elif fence:
            if not is_after_blank:
                out.append("")
            # The second word says to `make docs-check` that the block runs.
            out.append(level + re.sub(r"^(\W+\w+) run(?: \S+)?$", r"\1", line.strip()))
            closing = (stack[-1] if stack else width, fence[2])
        else:
            if line.lstrip().startswith("|") and not is_after_blank and not out[-1].lstrip().startswith("|"):
                out.append("")
            out.append(level + line.lstrip() if stack else line)
    return "\n".join(out)


def stack_before(out, level):
    """True if the line before is a continued item of the same list, which ends by itself."""
    for line in reversed(out):
        if not line.strip():
            return False
        if ITEM.match(line) and len(line) - len(line.lstrip()) == len(level):
            return True
    return False


def terms_of(glossary):
    """Words of the glossary: (spelling, anchor), the longest first."""
    found = []
    for line in glossary.splitlines():
        row = re.match(r"\| \*\*(.+?)\*\* \|", line)
        if row:
            anchor = anchor_of(row[1])
            found += [(word.strip(), anchor) for word in row[1].split(",")]
    return sorted(found, key=lambda term: -len(term[0]))


def anchor_of(words):
    return "word-" + re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def anchor_terms(glossary):
    """The glossary with a name at each word, so that pages can link to it."""
    return re.sub(r"^\| \*\*(.+?)\*\* \|", lambda row: f"| **{row[1]}**{{ #{anchor_of(row[1])} }} |", glossary, flags=re.M)


# Words of the glossary that mean something else in most sentences.
COMMON = {"port", "window", "message", "host", "core", "shift", "point", "task", "pass", "hold", "role", "lane", "ring", "tick", "session", "record", "grant", "setup", "trace", "scenario", "protocol", "service time", "segment"}


def link_terms(text, terms, glossary, most=12):
    """Links the first use of each word of the glossary in running text.

    Headings, tables, links and code stay."""
    wanted = {spelling: anchor for spelling, anchor in terms if spelling.lower() not in COMMON}
    if not wanted:
        return text
    words = "|".join(re.escape(spelling) + r"s?" for spelling in wanted)
    pattern = re.compile(rf"(?<![\w\-/.\[`*])({words})(?![\w\-/`*\]])", re.I)
    used = set()

    def link(match):
        spelling = match[1]
        plain = next((word for word in wanted if spelling.lower() in (word.lower(), word.lower() + "s")), None)
        if plain is None or wanted[plain] in used or len(used) >= most:
            return spelling
        # An abbreviation counts as it is written, not a word of the same letters.
        if plain.isupper() and not spelling.rstrip("s").isupper():
            return spelling
        used.add(wanted[plain])
        return f'[{spelling}]({glossary}#{wanted[plain]}){{.word}}'

    # Links, bold text, tags, headings and rows of tables pass untouched.
    kept = re.compile(r"(!?\[[^\]]*\]\([^)]*\)|\*\*[^*]+\*\*|<[^>]*>|^\s*(?:#|\||>).*$)", re.M)

    def parts(piece):
        return "".join(part if at % 2 else pattern.sub(link, part) for at, part in enumerate(kept.split(piece)))

    return outside_code(text, parts)
