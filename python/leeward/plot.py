"""Figures as in the papers, in the colours of the HTML report.

Each function returns a `matplotlib.figure.Figure`, and needs the extra `plot` (`MissingExtra`). It
raises `ResultsError` for an unknown field. `ax`: the axes to draw on, by default those of a new
figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _leeward
from .errors import ResultsError
from .extras import need
from .values import shown, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHORT = {
    "goodput": "goodput_rps",
    "throughput": "throughput_rps",
    "demand": "demand_ratio",
    "controller": "label",
    "tail": "p99_us",
    "median": "p50_us",
    "p50": "p50_us",
    "p99": "p99_us",
    "p999": "p999_us",
    "delay": "delay_us",
    "time": "start_s",
    "drops": "drop_rate",
    "utilization": "cpu_utilization",
    "rtt": "rtt_us",
    "slo": "slo_us",
}
LATENCIES = ("mean_us", "p50_us", "p99_us", "p999_us")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
HEADINGS = {name: (heading, unit) for name, heading, unit in _leeward.fields()}


# Columns that say which run, or which part of it, a row is of.
RUNS = ("controller", "label", "service", "clients", "p", "r", "rtt_us", "slo_us", "allocator", "balancing", "arrivals", "threading", "fanout", "model", "demand_rps", "demand_ratio")
PARTS = ("lock", "replica", "name", "kind", "tenant", "class")


def heading(field: str) -> str:
    """Heading of a field with its unit, for an axis."""
    words, unit = HEADINGS.get(field, (field, ""))
    return f"{words} [{unit}]" if unit else words


def looks(variants: Iterable[tuple[str, str]]) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Colour and marker by label, for variants (label, controller); and colours of other series."""
    known, spare = _leeward.looks(list(variants))
    return {label: (color, MARKERS[marker % len(MARKERS)]) for label, color, marker in known}, spare


def plot(
    what: Any,
    y: str = "goodput",
    x: str | None = None,
    by: str = "label",
    *,
    only: str | None = None,
    where: Mapping[str, Any] | None = None,
    ax: Axes | None = None,
    logy: bool | None = None,
) -> Figure:
    """Draws lines of `y` over `x`, one line for each value of `by`.

    A line is the mean over the seeds. A band around it reaches from the smallest to the largest
    value.

    - `what`: results or a sweep.
    - `y`: `goodput`, `tail` (the 99th percentile), `delay`, or any field.
    - `x`: by default `demand`, or `time` if `y` is a field of time series alone.
    - `by`: `controller`, `clients`, or any field.
    - `only`: the label of the variant to draw, needed if there are several and `by` does not
      separate them.
    - `where`: fields and the values that rows must have, such as `{"clients": 1000}`.
    - `logy`: True for a logarithmic y axis; by default for `tail`, `p99` and `p999`.

    Raises `ResultsError` if a line would mix runs that differ in more than their seed.
    """
    field, by = _field("y", y), _field("by", by)
    x = _field("x", x) if x else None
    table = _table_with(what, [field] + ([x] if x else []) + [by])
    if x is None:
        x = "start_s" if "start_s" in table.names else "demand_ratio"
    rows = _rows_of(table, only, by, where)
    _refuse_mixture(table, rows, (by, x), by)
    series = _grouped(table, rows, x, field, by)
    figure, axes = _axes(ax)
    styles, spare = looks(_variants(table))
    for index, (name, points) in enumerate(series.items()):
        plain = (spare[index % len(spare)], MARKERS[index % len(MARKERS)])
        color, marker = styles.get(name, plain) if by == "label" else plain
        at = list(points)
        means = [sum(values) / len(values) for values in points.values()]
        mark: dict[str, Any] = {} if x == "start_s" else {"marker": marker, "markersize": 4}
        axes.plot(at, means, color=color, label=str(name), linewidth=1.6, **mark)
        if any(len(values) > 1 for values in points.values()):
            low, high = [min(values) for values in points.values()], [max(values) for values in points.values()]
            axes.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0)
    if logy or (logy is None and y in ("tail", "p99", "p999")):
        axes.set_yscale("log")
        _plain_logarithm(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)
    _scaled(axes.xaxis, x)
    if axes.get_yscale() != "log":
        _scaled(axes.yaxis, field)
    _finish(axes, heading(x), heading(field), "" if by == "label" else heading(by), only)
    return figure


def cdf(what: Any, which: str = "latency", *, by: str = "label", ax: Axes | None = None) -> Figure:
    """Draws a cumulative distribution.

    - If `what` is a `Load`, or a dict of names to `Load`s: the distribution `which` of each, such
      as `latency`, over a logarithmic axis in µs.
    - If `what` is results or a sweep: the field `which` over the rows, a line for each value of
      `by`.
    """
    figure, axes = _axes(ax)
    if hasattr(what, "buckets"):
        what = {"load": what}
    if isinstance(what, dict):
        _, spare = looks([])
        if not all(load.kept for load in what.values()):
            axes.set_title("Not measured: a generator did not keep its schedule", fontsize="medium")
        for index, (name, load) in enumerate(what.items()):
            buckets = load.buckets(which)
            total, sums, so_far = sum(count for _, count in buckets), [], 0
            for _, count in buckets:
                so_far += count
                sums.append(so_far / total)
            axes.step([us for us, _ in buckets], sums, where="post", color=spare[index % len(spare)], label=name)
        axes.set_xscale("log")
        _finish(axes, f"{which.replace('_', ' ').capitalize()} [µs]", "Share of requests")
        return figure
    field, by = _field("which", which), _field("by", by)
    table = _table_with(what, [field, by])
    styles, spare = looks(_variants(table))
    grouped: dict[Any, list[float]] = {}
    for name, value in zip(table.column(by), measured(table, field)):
        if value is not None:
            grouped.setdefault(name, []).append(value)
    for index, (name, values) in enumerate(grouped.items()):
        values.sort()
        color = styles[name][0] if by == "label" and name in styles else spare[index % len(spare)]
        axes.step(values, [(rank + 1) / len(values) for rank in range(len(values))], where="post", color=color, label=str(name))
    _finish(axes, heading(field), "Share")
    return figure


def heat(what: Any, z: str = "goodput", x: str = "demand", y: str = "clients", *, only: str | None = None, where: Mapping[str, Any] | None = None, ax: Axes | None = None) -> Figure:
    """Draws a heat map of a sweep: the mean of `z` over the seeds, for each `x` and `y`.

    `only`: the label of the variant to draw, needed if there are several. `where`: as in `plot`.
    """
    names = [_field("x", x), _field("y", y), _field("z", z)]
    table = _table_with(what, names)
    kept = _rows_of(table, only, "", where)
    cells: dict[tuple[Any, Any], list[float]] = {}
    for keep, across, up, value in zip(kept, table.column(names[0]), table.column(names[1]), measured(table, names[2])):
        if keep and value is not None:
            cells.setdefault((across, up), []).append(value)
    if not cells:
        raise ResultsError(f"no row has a value of {names[2]}")
    _refuse_mixture(table, kept, names[:2], "")
    columns = sorted({key[0] for key in cells})
    rows = sorted({key[1] for key in cells})
    mean = [[_mean(cells.get((column, row))) for column in columns] for row in rows]
    figure, axes = _axes(ax)
    image = axes.imshow(mean, origin="lower", aspect="auto", cmap="viridis")
    axes.set_xticks(range(len(columns)), [_short(value) for value in columns])
    axes.set_yticks(range(len(rows)), [_short(value) for value in rows])
    axes.set_xlabel(heading(names[0]))
    axes.set_ylabel(heading(names[1]))
    _scaled(figure.colorbar(image, ax=axes, label=heading(names[2])).ax.yaxis, names[2])
    if only is not None:
        axes.set_title(only, fontsize="medium")
    return figure


def _field(argument: str, name: Any) -> str:
    """The field for the value of an argument, which is its name or its name in `SHORT`."""
    field = text(argument, name, "the name of a field, such as goodput", ResultsError)
    return SHORT.get(field, field)


def _mean(values: list[float] | None) -> float:
    return sum(values) / len(values) if values else float("nan")


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _table_with(what: Any, fields: Sequence[str]) -> _leeward.Table:
    """The first table that has rows and all of these fields."""
    found: list[_leeward.Table] = [what.table()] if not hasattr(what, "native") else [what.table(name) for name in ("points", "windows", "locks", "replicas", "services", "kinds")]
    for table in found:
        if all(field in table.names for field in fields) and len(table):
            return table
    refuse_empty(next((table for table in found if all(field in table.names for field in fields)), None))
    accepted = ", ".join(sorted({name for table in found for name in table.names}))
    raise ResultsError(f"no table has {' and '.join(fields)}; accepted: {accepted}")


def refuse_empty(table: _leeward.Table | None) -> None:
    """Raises `ResultsError` for a table without rows: the run recorded none."""
    if table is not None and not len(table):
        which = 'windows, which a scenario with run.window records, as in .set({"run.window": "10ms"})' if "start_s" in table.names else "such rows"
        raise ResultsError(f"the results have no {which}")


def _variants(table: _leeward.Table) -> list[tuple[str, str]]:
    if "label" not in table.names:
        return []
    return list(dict.fromkeys(zip(table.column("label"), table.column("controller"))))


def _rows_of(table: _leeward.Table, only: str | None, by: str, where: Mapping[str, Any] | None) -> list[bool]:
    """True for each row to draw: of the rows of `only`, or of all, those with values of `where`.

    Raises `ResultsError` if there are several variants, and neither `only` nor `by` separates them:
    a mean over several variants has no meaning.
    """
    labels = table.column("label")
    known = sorted(set(labels))
    if only is not None and only not in known:
        raise ResultsError(f"no rows of the variant `{only}`; accepted: {', '.join(known)}")
    if only is None and by not in ("label", "controller") and len(known) > 1:
        raise ResultsError(f"several variants; accepted: only={', '.join(known)}")
    rows = [only is None or label == only for label in labels]
    for name, value in (where or {}).items():
        values = table.column(_field("where", name))
        if not any(is_equal(one, value) for one in values):
            raise ResultsError(f"where: no row has {name}={shown(value)}; accepted: {', '.join(str(one) for one in sorted({one for one in values if one is not None}))}")
        rows = [keep and is_equal(one, value) for keep, one in zip(rows, values)]
    return rows


def axes_of(table: _leeward.Table) -> list[str]:
    """Columns that say which run or part of it a row is of: workload, swept keys, a lock's name."""
    return [name for name in table.names if name in RUNS + PARTS or name not in HEADINGS]


def _refuse_mixture(table: _leeward.Table, rows: list[bool], apart: Sequence[str], by: str) -> None:
    """Raises `ResultsError` if rows that are equal in `apart` and the seed differ in another axis.

    A mean over several numbers of clients has no meaning.
    """
    if "seed" not in table.names:
        return
    others = [name for name in axes_of(table) if name not in apart]
    first: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    same = zip(*(table.column(name) for name in [*apart, "seed"]))
    for keep, key, rest in zip(rows, same, zip(*(table.column(name) for name in others))):
        if not keep:
            continue
        if key not in first:
            first[key] = rest
            continue
        different = [name for name, one, other in zip(others, first[key], rest) if one != other]
        if not different:
            raise ResultsError("several runs of one seed that no column of the table tells apart; accepted: results of one workload")
        how = f"by={different[0]}, or " if by and len(different) == 1 else ""
        raise ResultsError(f"several values of {' and '.join(different)} in one line or cell; accepted: {how}where={{{different[0]!r}: …}}")


def measured(table: _leeward.Table, field: str) -> list[Any]:
    """A column, with None for the latency of a run without responses: it has none, not 0."""
    values = table.column(field)
    if any(isinstance(value, str) for value in values):
        raise ResultsError(f"{field} has no numbers; accepted: a field such as goodput")
    if field not in LATENCIES or "throughput_rps" not in table.names:
        return values
    return [value if answered else None for value, answered in zip(values, table.column("throughput_rps"))]


def is_equal(one: Any, value: Any) -> bool:
    """True for equal values: of numbers with a fraction, within half a percent, as in claims.

    A demand of twice the capacity is no round number.
    """
    if isinstance(one, float) and isinstance(value, int | float):
        return math.isclose(one, value, rel_tol=0.005)
    return bool(one == value)


def _grouped(table: _leeward.Table, rows: list[bool], x: str, y: str, by: str) -> dict[Any, dict[Any, list[float]]]:
    """Values of y by series and x: series in the order of their first rows, x ascending."""
    grouped: dict[Any, dict[Any, list[float]]] = {}
    for keep, name, at, value in zip(rows, table.column(by), table.column(x), measured(table, y)):
        if keep and at is not None and value is not None:
            grouped.setdefault(name, {}).setdefault(at, []).append(value)
    return {name: dict(sorted(points.items())) for name, points in grouped.items()}


def _axes(ax: Axes | None) -> tuple[Figure, Any]:
    if ax is not None:
        whole: Any = ax.figure
        return whole, ax
    need("matplotlib.figure")
    from . import figures

    figure = figures.Figure(figsize=(5.4, 3.4), dpi=150, layout="constrained")
    return figure, figure.subplots()


def _scaled(axis: Any, field: str) -> None:
    """Formats rates on the axis as 800k instead of 800000."""
    if HEADINGS.get(field, ("", ""))[1] == "1/s":
        axis.set_major_formatter(need("matplotlib.ticker").EngFormatter(sep=""))


def _plain_logarithm(axis: Any) -> None:
    """Formats numbers on a logarithmic axis as 60 and 100; also between few powers of ten."""
    formatter = need("matplotlib.ticker").LogFormatter
    axis.set_major_formatter(formatter())
    axis.set_minor_formatter(formatter(minor_thresholds=(1, 0.4)))


def _finish(axes: Any, x: str, y: str, by: str = "", only: str | None = None) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize="small", title=by or None, title_fontsize="small")
    if only is not None:
        axes.set_title(only, fontsize="medium")
