"""The report as one HTML file: the plot of cost and recall, the table, and the sessions with the most misses."""

from html import escape
from typing import Final

from minutebook.lab.plot import svg
from minutebook.lab.replay import FULL
from minutebook.lab.report import PolicyResult, Report

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; } .best { font-weight: 600; } .miss { color: #666; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; }
"""
_WORST: Final = 10
_COLUMNS: Final = ("cost", "cost with re-reads", "names", "quotes", "requests")


def html_page(report: Report) -> str:
    """The page. Texts of the sessions are escaped; it needs no other file and runs no script."""
    pareto = report.pareto()
    points = {result.name: (result.measure("cost"), result.measure("names")) for result in report.results}
    head = "".join(f"<th>{escape(name)}</th>" for name in ("policy", *_COLUMNS, "dearer", "refused", "ms per view"))
    rows = "".join(_row(result, is_best=result.name in pareto) for result in report.results)
    details = "".join(_worst(result) for result in report.results if result.name != FULL)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>minutebook lab</title><style>{_STYLE}</style>'
        f"<h1>History policies on {report.sessions:,} sessions</h1>"
        f"<p>{report.messages:,} messages, a budget of {report.budget:,} tokens. Costs are relative to sending the full "
        f"history with the prompt cache. Bold: no other policy is both cheaper and better.</p>"
        f"{svg(points, {})}<table><tr>{head}</tr>{rows}</table>{details}</html>\n"
    )


def _row(result: PolicyResult, *, is_best: bool) -> str:
    cells = [f"{result.measure(name):.3f}" if "cost" in name else f"{result.measure(name):.1%}" for name in _COLUMNS]
    cells += [f"{len(result.dearer):,}", f"{result.total('refused'):,}", f"{result.milliseconds:.2f}"]
    columns = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr class="{"best" if is_best else ""}"><td>{escape(result.name)}</td>{columns}</tr>'


def _worst(result: PolicyResult) -> str:
    missed = sorted(
        (outcome for outcome in result.outcomes if outcome.misses), key=lambda item: item.lines_found - item.lines
    )
    sessions = "".join(
        f"<li>{escape(outcome.session)}: {outcome.lines - outcome.lines_found:,} of {outcome.lines:,} quoted lines missed, "
        f"cost {outcome.ratio:.2f}<ul>"
        + "".join(
            f'<li class="miss">message {miss.source}, used in answer {miss.call}: {escape(miss.text[:160])}</li>'
            for miss in outcome.misses[:5]
        )
        + "</ul></li>"
        for outcome in missed[:_WORST]
    )
    return f"<h2>{escape(result.name)}: sessions with the most misses</h2><ol>{sessions}</ol>" if sessions else ""
