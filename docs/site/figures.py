"""The figures of the site and the report, each with its source and the command that made its data.

Contains no drawing (`svg.py`) and no reading (`sources.py`).
"""
import re
from dataclasses import dataclass
from functools import cache

import svg
from sources import VERDICTS, cells, data, find, paper_of, table, value, verdicts

UNITS = {
    "demand_rps": "demand, requests/s", "goodput_rps": "goodput, requests/s", "throughput_rps": "throughput, requests/s",
    "p99_us": "99th percentile, µs", "rtt_us": "round trip, µs", "drop_rate": "share of rejected requests",
    "p": "share of requests on the slow path",
}
NAMES = ("reproduced", "not reproduced", "undecided", "not measured")


@dataclass
class Figure:
    id: str
    title: str
    picture: str
    command: str
    source: str
    caption: str


@cache
def panels():
    """The papers' figures as the table of verdicts has them."""
    found = []
    for scenario in verdicts()["scenarios"]:
        for at, panel in enumerate(scenario.get("panels", [])):
            curves = [(curve["label"], [(s["x"], s["median"], s["low"], s["high"]) for s in curve["samples"]]) for curve in panel["curves"]]
            paper = [(stated.get("x"), stated.get("y")) for stated in panel.get("stated", [])]
            is_log = panel.get("log_y", False)
            if is_log:
                curves = [(label, [point for point in points if min(point[1:]) > 0]) for label, points in curves]
            title = f"{panel['title']}: {panel['figure']}"
            made = scenario.get("provenance", {})
            command = made.get("command") or f"leeward verdicts --quick --seeds {scenario['seeds']} --scenario {scenario['id']}"
            seeds = f"Median of {scenario['seeds']} seeds and its 95 % interval, algorithms as published."
            says = " ".join(f"The paper: {stated['says']}." for stated in panel.get("stated", []))
            if not paper:
                says = "The paper gives no number of this figure in its text."
            found.append(Figure(
                f"{scenario['id']}-{at}", title,
                svg.lines(title, curves, UNITS.get(panel["x"], panel["x"]), UNITS.get(panel["y"], panel["y"]), log_y=is_log, paper=paper),
                command, "docs/verdicts.json", f"{scenario['title']}. {seeds} {says}",
            ))
    return found


def counts(claims):
    """Numbers of claims per verdict, as `VERDICTS` lists them."""
    names = [claim["published"]["verdict"].replace("not_applicable", "not_measured") for claim in claims]
    return [names.count(verdict) for verdict in VERDICTS]


def of_papers(scenario):
    return [claim for claim in scenario["claims"] if not claim["ours"]]


def claims_by_paper():
    rows = {}
    for scenario in verdicts()["scenarios"]:
        several = rows.setdefault(paper_of(scenario["source"]), [0] * 4)
        for at, count in enumerate(counts(of_papers(scenario))):
            several[at] += count
    order = [name for name in ("Breakwater", "Thesis", "Hoover", "µTune", "Poster", "others") if sum(rows.get(name, []))]
    rows = [(name, rows[name]) for name in order]
    title = "Claims of the papers, by verdict"
    return Figure(
        "claims-by-paper", title, svg.stacks(title, rows, NAMES), verdicts()["command"], "docs/verdicts.json",
        "Each claim is judged on the algorithms as published. A scenario that follows two papers counts for the one that it names first.",
    )


def service():
    head = "| | responses within 50 ms | p99 of the responses |"
    rows, path = table(head)
    title = "Twice the capacity: responses within 50 ms"
    values = [(label.strip("* "), [value(good)]) for label, good, _ in rows]
    return Figure(
        "doors-service", title, svg.bars(title, values, [""], "/s", width=380, thick=70), 'make ecosystem ARGS="--only readme"', str(path),
        "An axum service of 0.5 ms of CPU per request, on one thread, offered 3,600 requests/s. Measured on two shared CPUs.",
    )


def overload():
    """Goodput against demand, small: without the rivals' second settings."""
    panel = next(scenario for scenario in verdicts()["scenarios"] if scenario["id"] == "bw-overall")["panels"][0]
    curves = [(curve["label"], [(s["x"], s["median"], s["low"], s["high"]) for s in curve["samples"]]) for curve in panel["curves"] if "tuned" not in curve["label"]]
    like = next(figure for figure in panels() if figure.id == "bw-overall-0")
    picture = svg.lines(panel["title"], curves, "demand, requests/s", "goodput", width=380, height=230)
    return Figure("doors-overload", panel["title"], picture, like.command, like.source, like.caption.split(" The paper")[0])


def tail():
    text, path = find(r"took [\d.]+ ms or longer: [\d.]+ ms on average, the others \d+ µs\.[^`]*?: [\d.]+ ms per request\s+in the slowest")
    match = re.search(r"longer: ([\d.]+) ms on average, the others (\d+) µs\..*?: ([\d.]+) ms per request", re.sub(r"\s+", " ", text[0]))
    slow, others, lock = float(match[1]), float(match[2]) / 1000, float(match[3])
    title = "Where the slowest requests spend their time"
    rows = [("the slowest 1 %", [slow]), ("… for a mutex", [lock]), ("the others", [others])]
    return Figure(
        "doors-tail", title, svg.bars(title, rows, [""], " ms", width=380, thick=46), "leeward profile tail leeward-traces/* --request-fn request_handler", str(path),
        "Mean latency in the profiler's example program, and the part of it in which the slowest requests wait for one mutex.",
    )


LEAGUE = "| controller | of the oracle | of the best other, tuned ones included | lock-outs | p99 too late | alone | did not settle | its worst match |"


def matches():
    return find(r"\d+ matches\. Ratios of goodput")[0][0].split()[0]


def league():
    rows, path = table(LEAGUE)
    several = []
    for name, oracle, *_ in rows:
        median, decile, worst = (float(part) for part in oracle.split(", "))
        several.append((name.strip("`"), [median, decile, worst]))
    title = "Goodput over the oracle's: median, first decile, worst"
    return Figure(
        "league", title, svg.bars(title, several, ["median", "first decile", "worst match"], highest=1.0), "leeward league --random-only … (in full in docs/league.md)", str(path),
        f"{len(rows)} controllers with their default parameters in {matches()} matches of the simulator that had settled. The oracle knows every service time.",
    )


def lockouts():
    rows, path = table(LEAGUE)
    several = [(row[0].strip("`"), [value(row[3]), value(row[4])]) for row in rows]
    title = "Lock-outs, and matches with a late 99th percentile"
    return Figure(
        "league-failures", title, svg.bars(title, several, ["lock-outs", "late 99th percentile"]), "leeward league --random-only … (in full in docs/league.md)", str(path),
        f"Of {matches()} matches. A match counts as late if the oracle's 99th percentile is in time.",
    )


def proxies():
    rows, path = table("| handler | `leeward proxy` | HAProxy | nginx | Envoy | none |")
    names = ["leeward proxy", "HAProxy", "nginx", "Envoy", "no proxy"]
    several = [(row[0].replace("of it ", ""), [value(cell) for cell in row[1:6]]) for row in rows[:5]]
    title = "Goodput over the capacity, at twice the capacity"
    return Figure(
        "proxies", title, svg.bars(title, several, names, highest=1.05), 'make proxy ARGS="--quick --only go/cpu/2x", and so on', str(path),
        "A Go service on one CPU, the proxy on the other; one round of 3 s on a shared machine. HAProxy and nginx have the static numbers that a search found for that row. A difference of a few hundredths means nothing.",
    )


GRAPHS = "| | `tier-chain`, 2x | `tier-diamond`, 2x | `tier-leaf-overload`, 1.5x | `tier-fanout`, 1.5x |"


def tiers(part, title, unit, identity, caption):
    rows, path = table(GRAPHS)
    chosen = [row for row in rows if row[0].split()[0].strip("`") in ("reserved", "breakwater", "dagor", "rajomon", "topfull")]
    names = [re.sub(r"[`()]|leeward", "", row[0]).strip() for row in chosen]
    graphs = [cell.replace("`", "") for cell in cells(GRAPHS)[1:]]
    several = [(graph, [value(row[at + 1].split(", ")[part]) for row in chosen]) for at, graph in enumerate(graphs)]
    return Figure(
        identity, title, svg.bars(title, several, names, unit), "leeward run tier-chain --set run.seeds=1 --set workload.demand=2x, and so on", str(path), caption,
    )


def goodput_of_tiers():
    return tiers(0, "Goodput over the narrowest service's capacity", "", "tiers-goodput", "Four graphs of services in the simulator, seed 1, one second after half a second of warm-up; the objective is 1 ms.")


def waste_of_tiers():
    return tiers(2, "CPU time wasted upstream", " %", "tiers-waste", "CPU time of services that ask others, spent on requests that were not answered in time; the same runs.")


def fixed_times():
    """Verdicts of runs with fixed times: {(scenario, claim): claim}."""
    claims = data("fixed-times.json")["claims"]
    return {(claim["scenario"], claim["claim"]): claim for claim in claims}


@cache
def changes():
    """(verdict with fixed times, verdict of settled runs) of each claim that has both."""
    before = fixed_times()
    found = []
    for scenario in verdicts()["scenarios"]:
        # Scenarios without a provenance have not been judged by the rule of settling yet.
        for claim in of_papers(scenario) if "provenance" in scenario else []:
            old = before.get((scenario["id"], claim["published"]["id"]))
            if old:
                found.append((old["verdict"], claim["published"]["verdict"]))
    return found


def settling():
    rows = []
    for verdict, name in zip(VERDICTS[:3], NAMES):
        after = [new for old, new in changes() if old == verdict]
        rows.append((f"was {name}", [after.count(new) for new in VERDICTS[:3]]))
    title = "Verdicts of settled runs, by the verdict of runs with fixed times"
    return Figure(
        "settling", title, svg.stacks(title, rows, NAMES[:3]), verdicts()["command"], "docs/verdicts.json, docs/report/data/fixed-times.json",
        f"The {len(changes())} claims of papers that both tables judge, as published. Tables differ in seeds (10 and 5) and in the rivals' tuning, too.",
    )


MOVED = (
    ("bw-service-time", "over-seda-100us", "Breakwater over SEDA"),
    ("bw-clients", "seda-needs-retuning", "SEDA, retuned"),
    ("lk-trylock", "try-lock-worst-throughput", "try-lock"),
    ("lk-breakdown", "equal-below", "equal below"),
)


def moved():
    before, now = fixed_times(), {}
    for scenario in verdicts()["scenarios"]:
        for claim in scenario["claims"]:
            now[scenario["id"], claim["published"]["id"]] = claim
    rows = []
    for scenario, identity, label in MOVED:
        claim = now[scenario, identity]
        rows.append((label, [before[scenario, identity]["value"], claim["published"]["value"], claim["bounds"].get("number")]))
    title = "Ratios of goodput or throughput in four claims"
    return Figure(
        "settling-moved", title, svg.bars(title, rows, ["fixed times", "settled", "in the paper"], absent="no number"), verdicts()["command"],
        "docs/verdicts.json, docs/report/data/fixed-times.json", "Names of the claims: " + ", ".join(f"{scenario} {identity}" for scenario, identity, _ in MOVED) + ".",
    )


def ages():
    found = data("ages.json")
    names = (("leeward watch: at most", "at_most_ms"), ("leeward watch: at least", "at_least_ms"), ("measured by the clients", "clients_ms"))
    curves = [(name, [(row["load"], row[key], row[key], row[key]) for row in found["rows"]]) for name, key in names]
    title = "Age of the oldest unread request"
    return Figure(
        "ages", title, svg.lines(title, curves, "load over the capacity", "age, ms"), found["command"],
        "docs/report/data/ages.json", f"Medians over the samples of each level of load; what it tells is within 20 % and 2 ms of the clients' in {min(row['within'] for row in found['rows']):.0%} of the samples or more. On {found['machine']}, {found['date']}.",
    )


def limits():
    found = data("knee.json")
    rows = [(name, [several["median"], several["tenth"], several["worst"]]) for name, several in found["limits"].items()]
    title = "Goodput over that of the best static number"
    return Figure(
        "limits", title, svg.bars(title, rows, ["median", "worst tenth", "worst case"], highest=1.0), found["command"], "docs/report/data/knee.json",
        f"{found['cases']} random backends in the simulator, from a seed that chose no constant of ours; a search finds the best number for each.",
    )


def granularity():
    rows, path = table("| | tiny leaf | fib | chain of 20 |")
    several = [(row[0].replace("`", ""), [value(row[1].replace("+", "")), value(row[2].replace("+", ""))]) for row in rows]
    title = "Nanoseconds per call, over the program without"
    return Figure(
        "profiler-calls", title, svg.bars(title, several, ["tiny leaf", "fib"], " ns"), "profiler/experiments/ld-granularity", str(path),
        "Medians of five alternating rounds on two virtual CPUs: the program on one, the clock on the other. In-place instrumentation.",
    )


def cost():
    rows, path = table("| | clang | off | recorded | `overhead=5%` |")
    several = [(row[0], [value(cell.replace("−", "-").replace("+", "")) for cell in row[2:5]]) for row in rows]
    title = "CPU time over that of clang, per cent"
    return Figure(
        "profiler-cost", title, svg.bars(title, several, ["off", "recorded", "overhead=5%"], " %"), "profiler/experiments/ld-cost", str(path),
        "Medians of nine rounds on a quiet machine with two virtual CPUs; the quartiles stand in the source.",
    )


def attached_found():
    rows, path = table("| found of 60 | 3 % | 10 % | 20 % |")
    several = [(row[0], [value(cell) for cell in row[1:3]]) for row in rows]
    title = "Planted slow requests that a recording from outside has, of 60"
    return Figure(
        "attached-found", title, svg.bars(title, several, ["3 %", "10 % (the default)"], highest=60),
        "profiler/tests/attached/run --what faults --record=--overhead=N%", str(path),
        "60 among 20,000 requests to programs as Debian and go build made them, by the limit of the recording's CPU time.",
    )


def attached_cost():
    rows, path = table("| service | requests/s without | throughput with a recording | of three turns |")
    several = [(row[0], [value(row[2])]) for row in rows]
    title = "Throughput with a recording from outside over that without"
    return Figure(
        "attached-cost", title, svg.bars(title, several, [""], highest=1.0, thick=30),
        "profiler/tests/attached/run --what cost --quick", str(path),
        "Medians of three short turns; 0.97 was asked. The spread and the rates stand in the source.",
    )


def counted(text):
    """The text with `{=name}` replaced by what the data say."""
    papers = [sum(column) for column in zip(*(counts(of_papers(scenario)) for scenario in verdicts()["scenarios"]))]
    known = {
        "claims": sum(papers), **dict(zip((verdict.replace("_", "-") for verdict in VERDICTS), papers)),
        "scenarios": len(verdicts()["scenarios"]), "unsettled": sum("provenance" not in scenario for scenario in verdicts()["scenarios"]), "settled-scenarios": sum("provenance" in scenario for scenario in verdicts()["scenarios"]),
        "compared": len(changes()), "changed": sum(old != new for old, new in changes()),
        "lost": changes().count(("reproduced", "undecided")), "won": sum(old != "reproduced" and new == "reproduced" for old, new in changes()),
        "reversed": changes().count(("reproduced", "not_reproduced")) + changes().count(("not_reproduced", "reproduced")),
    }
    for name, several in data("knee.json")["limits"].items():
        known.update({f"{name}-{part}": f"{number:.3f}" for part, number in several.items()})

    def fill(match):
        if match[1] not in known:
            raise SystemExit(f"report: there is no number {match[1]}; accepted: {', '.join(known)}")
        return str(known[match[1]])

    # A number and its unit stay on one line.
    return re.sub(r"(\d) (?=%|ms\b|µs\b|k/s)", "\\1\u00a0", re.sub(r"\{=([\w-]+)\}", fill, text))


@cache
def all_figures():
    own = [service(), tail(), claims_by_paper(), league(), lockouts(), proxies(), limits(), goodput_of_tiers(), waste_of_tiers(), ages(), settling(), moved(), cost(), granularity(), attached_found(), attached_cost()]
    return [overload(), *own, *panels()]


def figure(identity):
    for found in all_figures():
        if found.id == identity:
            return found
    raise SystemExit(f"figures: there is no {identity}")
