"""The report as one HTML file: plots of cost and recall, the table, and the sessions with the most misses."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Final

from minutebook.lab.outcome import Miss, SessionOutcome
from minutebook.lab.plot import svg
from minutebook.lab.replay import FULL
from minutebook.lab.report import PolicyResult, Report

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#59636e;--rule:#d8dde3;--paper:#ffffff;--panel:#f6f8fa;--good:#0b6e4f;--bad:#b5532a}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa4af;--rule:#30363d;--paper:#0d1117;--panel:#161b22;--good:#4cc38a;--bad:#f0986b}}
*{box-sizing:border-box}
body{font:15px/1.55 system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;color:var(--ink);background:var(--paper);
max-width:76rem;margin:2.5rem auto;padding:0 1.25rem}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .4rem}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p{max-width:60rem}
.soft{color:var(--soft)}.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(26rem,1fr));gap:1rem;margin:1.5rem 0}
.plots svg{width:100%;height:auto;border:1px solid var(--rule);border-radius:8px}
.wide{overflow-x:auto;border:1px solid var(--rule);border-radius:8px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.4rem .35rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th{font-weight:600;white-space:normal;line-height:1.25;background:var(--panel);vertical-align:bottom}tr:last-child td{border-bottom:0}
td:first-child,th:first-child{text-align:left;position:sticky;left:0;background:var(--paper);white-space:normal;
overflow-wrap:anywhere;min-width:9.5rem}th:first-child{background:var(--panel)}
.best td:first-child{font-weight:600}.best td:first-child::after{content:" ★";color:var(--good)}
.bad{color:var(--bad)}small{color:var(--soft);display:block;font-size:.78em}
details{border:1px solid var(--rule);border-radius:8px;margin:.6rem 0;padding:.6rem .9rem}summary{cursor:pointer;font-weight:600}
ol{padding-left:1.4rem}ol>li{margin:1rem 0}ul{list-style:none;padding:0;margin:.4rem 0}ul>li{margin:.35rem 0}
code{display:block;font:.82rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--panel);border-radius:4px;
padding:.15rem .5rem;margin:.15rem 0;overflow-wrap:anywhere;white-space:pre-wrap}
"""
_MAX_SESSIONS: Final = 10
_MAX_MESSAGES: Final = 5
_MAX_LINES: Final = 5
_MAX_LINE_CHARACTERS: Final = 240
_COSTS: Final = ("cost", "cost with re-reads")
_SHARES: Final = ("names", "names, other pattern", "quotes", "requests", "constraints", "decisions")
_COUNTS: Final = ("views", "cuts", "invalid", "over", "refused", "essentials_lost")
_TITLES: Final = (
    *("policy", "cost", "with re-reads", "names", "names, other pattern", "quotes", "requests", "constraints"),
    *("decisions", "dearer sessions"),
)
_VIEW_TITLES: Final = ("policy", "window", "views", "cuts", "invalid", "over", "refused", "lost", "ms per view")


def html_page(report: Report) -> str:
    """The page. Texts of the sessions are escaped; it needs no other file and runs no script."""
    pareto = report.pareto()
    is_priced = report.results[0].dollars is not None
    titles = (_TITLES[0], *(["dollars"] if is_priced else []), *_TITLES[1:])
    measures = _table(titles, [_row(result.name, _measures(result), pareto) for result in report.results])
    view_counts = _table(_VIEW_TITLES, [_row(result.name, _view_counts(result), pareto) for result in report.results])
    worst_sessions = "".join(_worst_sessions(result) for result in report.results if result.name != FULL)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>minutebook lab: {report.sessions:,} sessions</title><style>{_STYLE}</style></head><body>"
        f"<h1>History policies on {report.sessions:,} sessions</h1>"
        f'<p class="soft">{report.messages:,} messages, a budget of {report.budget:,} tokens. Costs are relative to sending the '
        "full history with the prompt cache. A recorded answer uses names and lines of earlier messages; recall is the share of "
        "them that was in the view. Dearer sessions cost more than their full history. ★: no other policy is cheaper and keeps "
        "as much.</p>"
        f'<div class="plots">{_plot(report, "names")}{_plot(report, "quotes")}</div>'
        f"{measures}{_indistinguishable_policies(report)}<h2>Views</h2>{view_counts}"
        '<p class="soft">window: tokens sent, relative to the budget. cuts: views that are not the previous one with messages '
        "appended. over: views above the budget. refused: the essential messages exceed the budget. lost: views without the system "
        "message, the first or the newest request.</p>"
        f"<h2>Sessions with the most missed lines</h2>{worst_sessions or '<p>No line was missed.</p>'}"
        "</body></html>\n"
    )


def _plot(report: Report, measure: str) -> str:
    points = {
        result.name: (result.measure("cost"), result.measure(measure)) for result in report.results if result.has_views
    }
    recall = f"{measure} in view when the answer uses them"
    return svg(points, {}, title=f"Cost and {measure}", recall=recall, frontier=True)


def _table(titles: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _row(name: str, cells: Sequence[str], pareto: set[str]) -> str:
    columns = "".join(f"<td>{cell}</td>" for cell in cells)
    return (
        f'<tr class="{"best" if name in pareto else ""}"><td>{escape(name).replace(":", ":<wbr>")}</td>{columns}</tr>'
    )


def _measures(result: PolicyResult) -> list[str]:
    if not result.has_views:
        return ["-"] * (len(_TITLES) - 1 if result.dollars is None else len(_TITLES))
    cells = [_with_interval(result, name, "{:.3f}") for name in _COSTS]
    cells += [_with_interval(result, name, "{:.1%}") for name in _SHARES]
    dearer = len(result.dearer)
    share = f"<small>{dearer / max(1, len(result.outcomes)):.0%}, up to {result.worst_ratio:.2f}</small>"
    cells.append(f'<span class="bad">{dearer:,}</span>{share}' if dearer else "0")
    return cells if result.dollars is None else [f"{result.dollars:,.2f}", *cells]


def _view_counts(result: PolicyResult) -> list[str]:
    cells = [f"{result.measure('window'):.0%}"]
    for name in _COUNTS:
        count = result.total(name)
        is_bad = name not in {"views", "cuts"} and count and result.name != FULL
        cells.append(f'<span class="bad">{count:,}</span>' if is_bad else f"{count:,}")
    return [*cells, f"{result.milliseconds:.2f}"]


def _with_interval(result: PolicyResult, name: str, form: str) -> str:
    low, high = result.interval(name)
    interval = "" if low == high else f"<small>{form.format(low)} to {form.format(high)}</small>"
    return form.format(result.measure(name)) + interval


def _indistinguishable_policies(report: Report) -> str:
    same = "".join(
        f"<li>{escape(first)} and {escape(second)} in {escape(', '.join(measures))}</li>"
        for (first, second), measures in report.indistinguishable().items()
    )
    return f'<p class="soft">These sessions show no difference between:</p><ul class="soft">{same}</ul>' if same else ""


def _worst_sessions(result: PolicyResult) -> str:
    sessions = result.worst_sessions(_MAX_SESSIONS)
    if not sessions:
        return ""
    missed = result.total("lines_missed")
    items = "".join(f"<li>{_session(outcome)}</li>" for outcome in sessions)
    title = f"{escape(result.name)}: {missed:,} of {result.total('lines'):,} quoted lines missed"
    return f"<details><summary>{title}</summary><ol>{items}</ol></details>"


def _session(outcome: SessionOutcome) -> str:
    by_message = sorted(outcome.misses, key=lambda miss: (miss.source, miss.call))
    groups = [(source, list(misses)) for source, misses in groupby(by_message, key=lambda miss: miss.source)]
    groups.sort(key=lambda group: -len(group[1]))
    messages = "".join(_message(source, misses) for source, misses in groups[:_MAX_MESSAGES])
    return (
        f"{escape(outcome.session)}: {outcome.lines_missed:,} of {outcome.lines:,} lines missed, cost {outcome.ratio:.2f}, "
        f"{outcome.cuts:,} cuts<ul>{messages}</ul>"
    )


def _message(source: int, misses: list[Miss]) -> str:
    answers = ", ".join(str(call) for call in dict.fromkeys(miss.call for miss in misses))
    lines = "".join(f"<code>{escape(miss.text[:_MAX_LINE_CHARACTERS])}</code>" for miss in misses[:_MAX_LINES])
    more = f'<span class="soft">and {len(misses) - _MAX_LINES} more lines</span>' if len(misses) > _MAX_LINES else ""
    return f'<li><span class="soft">message {source}, used in answer {answers}</span>{lines}{more}</li>'
