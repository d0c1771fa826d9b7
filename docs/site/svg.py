"""Line and bar charts as SVG whose colours are the page's CSS variables.

Contains no data and no files.
"""
import math
from html import escape

WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 60, 14, 14, 46
COLOURS = 7  # --c0 … --c6 in site.css and report.css


def number(value):
    """A value in at most three digits, with k and M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def ticks(low, high, count=5):
    """Round values between `low` and `high`."""
    if high <= low:
        return [low]
    raw = (high - low) / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * at for at in range(first, math.floor(high / step + 1e-9) + 1)]


def text(x, y, words, anchor="middle", kind="tick", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}"{extra}>{escape(words)}</text>'


def marker(x, y, at):
    """One mark; shapes repeat after five, so that colour is not the only difference."""
    shape, style = at % 5, f'style="fill:var(--c{at % COLOURS})"'
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {style}/>'
    if shape == 1:
        return f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2" {style}/>'
    points = {
        2: [(0, -5), (4.6, 3.6), (-4.6, 3.6)],
        3: [(0, -5.2), (5.2, 0), (0, 5.2), (-5.2, 0)],
        4: [(0, 5), (4.6, -3.6), (-4.6, -3.6)],
    }[shape]
    return f'<polygon points="{" ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in points)}" {style}/>'


def legend(labels, width, has_paper):
    """Rows of marks and labels below a chart, and their height. A letter takes 7.2 units."""
    entries = [(label, marker(7, -4, at)) for at, label in enumerate(labels)]
    if has_paper:
        entries.append(("in the paper", '<path d="M2,-4h10M7,-9v10" class="paper"/>'))
    out, x, y = [], LEFT - 40, 0
    for label, mark in entries:
        need = 22 + 7.2 * len(label) + 14
        if x + need > width and x > LEFT - 40:
            x, y = LEFT - 40, y + 20
        out.append(f'<g transform="translate({x:.1f},{y})">{mark}{text(18, 0, label, "start", "label")}</g>')
        x += need
    return out, y + 20


def boxes(labels, colours, width):
    """Rows of coloured boxes and labels below bars, and their height."""
    out, x, y = [], 20, 0
    for at, label in enumerate(labels):
        need = 36 + 7.2 * len(label)
        if x + need > width and x > 20:
            x, y = 20, y + 19
        out.append(f'<rect x="{x:.1f}" y="{y}" width="11" height="11" style="fill:var(--{colours}{at})"/>{text(x + 17, y + 10, label, "start", "label")}')
        x += need
    return out, y + 20


def frame(title, body, height, width=WIDTH):
    return (
        f'<svg class="figure" viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(body)}</svg>'
    )


def lines(title, curves, x_name, y_name, log_y=False, log_x=False, paper=(), height=HEIGHT, width=WIDTH, mark=None):
    """Curves: (label, [(x, y, low, high)]).

    `paper`: points (x, y); a line where one is None. `mark`: a horizontal line (y, words)."""
    xs = [x for _, points in curves for x, *_ in points] + [x for x, _ in paper if x is not None]
    values = [value for _, points in curves for _, y, low, high in points for value in (y, low, high)]
    values += [y for _, y in paper if y is not None] + ([mark[0]] if mark else [])
    if log_y:
        values = [value for value in values if value > 0]
    low_x, high_x = min(xs), max(xs)
    low_y, high_y = (min(values), max(values)) if log_y else (min(0, *values), max(values) * 1.05)
    if high_x == low_x:
        low_x, high_x = low_x - 1, high_x + 1
    if high_y == low_y:
        high_y = low_y + 1
    if log_y:
        low_y, high_y = 10 ** math.floor(math.log10(low_y)), 10 ** math.ceil(math.log10(high_y))
    right, bottom = width - RIGHT, height - BOTTOM

    def at_x(x):
        share = math.log(x / low_x) / math.log(high_x / low_x) if log_x else (x - low_x) / (high_x - low_x)
        return LEFT + 8 + share * (right - LEFT - 16)

    def at_y(y):
        y = max(y, low_y)
        share = math.log(y / low_y) / math.log(high_y / low_y) if log_y else (y - low_y) / (high_y - low_y)
        return bottom - share * (bottom - TOP)

    body = []
    tens = range(round(math.log10(low_y)), round(math.log10(high_y)) + 1) if log_y else []
    for y in [10.0**at for at in tens] if log_y else ticks(low_y, high_y):
        body.append(f'<path d="M{LEFT},{at_y(y):.1f}H{right}" class="grid"/>')
        body.append(text(LEFT - 7, at_y(y) + 4, number(y), "end"))
    for x in sorted(set(xs)) if log_x else ticks(low_x, high_x, 4):
        body.append(text(at_x(x), bottom + 17, number(x)))
    body.append(f'<path d="M{LEFT},{TOP}V{bottom}H{right}" class="axis"/>')
    body.append(text((LEFT + right) / 2, height - 8, x_name, kind="name"))
    body.append(text(0, 0, y_name, kind="name", extra=f' transform="translate(14,{(TOP + bottom) / 2:.0f}) rotate(-90)"'))
    if mark:
        body.append(f'<path d="M{LEFT},{at_y(mark[0]):.1f}H{right}" class="mark"/>')
        body.append(text(right - 4, at_y(mark[0]) - 5, mark[1], "end"))
    for at, (_, points) in enumerate(curves):
        style = f'style="stroke:var(--c{at % COLOURS})"'
        dash = ' stroke-dasharray="7 4"' if at >= COLOURS else ""
        path = "".join(f'{"L" if i else "M"}{at_x(x):.1f},{at_y(y):.1f}' for i, (x, y, *_) in enumerate(points))
        body.append(f'<path d="{path}" class="line"{dash} {style}/>')
        for x, y, low, high in points:
            if at_y(low) - at_y(high) > 3:
                body.append(f'<path d="M{at_x(x):.1f},{at_y(low):.1f}V{at_y(high):.1f}" class="range" {style}/>')
            body.append(marker(at_x(x), at_y(y), at))
    for x, y in paper:
        if y is None:
            body.append(f'<path d="M{at_x(x):.1f},{TOP}V{bottom}" class="paper" stroke-dasharray="2 4"/>')
        elif x is None:
            body.append(f'<path d="M{LEFT},{at_y(y):.1f}H{right}" class="paper" stroke-dasharray="2 4"/>')
        else:
            body.append(f'<path d="M{at_x(x) - 7:.1f},{at_y(y):.1f}h14M{at_x(x):.1f},{at_y(y) - 7:.1f}v14" class="paper"/>')
    rows, more = legend([label for label, _ in curves], width, bool(paper))
    body.append(f'<g transform="translate(0,{height + 18})">{"".join(rows)}</g>')
    return frame(title, body, height + more + 6, width)


def bars(title, rows, series, unit="", highest=None, row_height=None, width=WIDTH, thick=14, absent="not measured"):
    """Horizontal bars. Rows: (label, [value or None per series])."""
    room = 20 + 7.1 * max(len(label) for label, _ in rows)
    step = (thick + 2) * max(1, len(series)) + 10
    values = [value for _, several in rows for value in several if value is not None]
    top = highest or max(values) * 1.02 or 1
    right = width - 74

    def at_x(value):
        return room + min(value, top) / top * (right - room)

    begin = 4
    body = [f'<path d="M{room},{begin}V{begin + step * len(rows)}" class="axis"/>']
    for row, (label, several) in enumerate(rows):
        y = begin + row * step
        body.append(text(room - 8, y + step / 2 + 4, label, "end", "label"))
        for at, value in enumerate(several):
            top_y = y + 5 + at * (thick + 2)
            if value is None:
                body.append(text(room + 6, top_y + thick / 2 + 4, absent, "start"))
                continue
            length = max(at_x(max(value, 0)) - room, 1)
            body.append(f'<rect x="{room}" y="{top_y}" width="{length:.1f}" height="{thick}" style="fill:var(--c{at})"/>')
            body.append(text(room + length + 6, top_y + thick / 2 + 4, f"{value:,.3g}{unit}" if abs(value) < 1000 else f"{value:,.0f}{unit}", "start", "value"))
    height = begin + step * len(rows) + 6
    if len(series) > 1:
        keys, more = boxes(series, "c", width)
        body.append(f'<g transform="translate(0,{height + 4})">{"".join(keys)}</g>')
        height += more
    return frame(title, body, height, width)


def stacks(title, rows, series):
    """Stacked horizontal bars with their counts. Rows: (label, [count per series])."""
    top = max(sum(several) for _, several in rows)
    room = 14 + 7.1 * max(len(label) for label, _ in rows)
    right, thick, step = WIDTH - 34, 22, 34
    body = []
    for row, (label, several) in enumerate(rows):
        x, y = room, 6 + row * step
        body.append(text(room - 8, y + thick - 6, label, "end", "label"))
        for at, count in enumerate(several):
            length = count / top * (right - room)
            if count:
                body.append(f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="{thick}" style="fill:var(--v{at})"/>')
            if length > 18:
                body.append(text(x + length / 2, y + thick - 6, str(count), kind="inside"))
            x += length
        body.append(text(x + 6, y + thick - 6, str(sum(several)), "start", "value"))
    height = 6 + step * len(rows) + 8
    keys, more = boxes(series, "v", WIDTH)
    body.append(f'<g transform="translate(0,{height})">{"".join(keys)}</g>')
    return frame(title, body, height + more)
