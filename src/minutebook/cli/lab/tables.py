"""The tables of `minutebook lab` on a terminal."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from minutebook.cli.screen import console, headed_table, one_line
from minutebook.lab.outcome import Miss
from minutebook.lab.replay import FULL
from minutebook.lab.report import PolicyResult, Report
from minutebook.lab.settings_search import Tuning
from minutebook.lab.shadow import ShadowGroup

_MEASURES = ("cost", "re-reads", "names", "quotes", "goals", "dearer")
_DETAILS = ("views", "window", "cuts", "invalid", "over", "refused", "lost", "ms")


def show_report(report: Report, html: Path | None) -> None:
    out = console()
    out.print(f"{report.sessions:,} sessions, {report.messages:,} messages, budget {report.budget:,} tokens")
    _print_table(out, report, with_details=True)
    out.print(_legend(report), style="dim")
    _print_savings(out, report)
    if not report.results[0].total("over"):
        out.print(
            f"No request of the full history exceeds {report.budget:,} tokens, so managers with a budget leave nothing out; "
            "set a lower --max-tokens.",
            soft_wrap=True,
        )
    same = report.indistinguishable() if report.sessions > 1 else {}
    if report.sessions == 1:
        out.print("One session cannot show how policies differ in others: intervals need several.")
    elif same:
        out.print("These sessions show no difference between:")
    for (first, second), measures in same.items():
        out.print(f"  {first} and {second} in {', '.join(measures)}", markup=False, soft_wrap=True)
    if html is not None:
        out.print(f"wrote {html}")


def _print_table(out: Console, report: Report, *, with_details: bool = False) -> None:
    pareto = report.pareto()
    names = {result.name: f"{result.name} *" if result.name in pareto else result.name for result in report.results}
    is_priced = report.results[0].dollars is not None
    table = _table(*(["dollars"] if is_priced else []), *_MEASURES)
    details = _table(*_DETAILS)
    for result in report.results:
        table.add_row(names[result.name], *([f"{result.dollars:,.2f}"] if is_priced else []), *_measures(result))
        details.add_row(names[result.name], *_details(result))
    out.print(table)
    if with_details:
        out.print(details)


def _table(*titles: str) -> Table:
    table = headed_table()
    table.add_column("policy", overflow="fold")  # a long name has several lines, so that no figure is cut
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _measures(result: PolicyResult) -> list[str]:
    if not result.has_views:
        return ["-"] * len(_MEASURES)
    return [
        f"{result.measure('cost'):.2f}",
        f"{result.measure('cost with re-reads'):.2f}",
        f"{result.measure('names'):.1%}",
        f"{result.measure('quotes'):.1%}",
        f"{goal_recall(result):.0%}",
        f"{len(result.dearer):,} (up to {result.worst_ratio:.2f})" if result.dearer else "0",
    ]


def _details(result: PolicyResult) -> list[str]:
    counts = ("cuts", "invalid", "over", "refused", "essentials_lost")
    return [
        f"{result.total('views'):,}",
        f"{result.measure('window'):.0%}",
        *(f"{result.total(name):,}" for name in counts),
        f"{result.milliseconds:.1f}",
    ]


def goal_recall(result: PolicyResult) -> float:
    """The share of requests, constraints and decisions that were in view, each kind with the same weight."""
    return sum(result.measure(name) for name in ("requests", "constraints", "decisions")) / 3


def _legend(report: Report) -> str:
    lines = [
        "cost: relative to the full history with the prompt cache. re-reads: cost including reading missed lines again.",
        "names, quotes: an answer uses names and lines of earlier messages; the share of them that was in the view.",
        "goals: share of the requests, constraints and decisions that the view contained.",
        "dearer: sessions that cost more than the full history. window: tokens sent, relative to the budget.",
        "over: views above the budget. refused: calls whose essential messages exceed the budget.",
        "lost: views without the system message, the first request or the newest request.",
        "* no other policy is cheaper and keeps as many names and quotes.",
    ]
    if report.results[0].dollars is not None:
        models = sorted({str(outcome.model) for outcome in report.results[0].outcomes})
        lines.append(f"dollars: input tokens with the prices of {', '.join(models)}.")
    return "\n".join(lines)


def _print_savings(out: Console, report: Report) -> None:
    """Answer whether the first policy would have saved money."""
    if len(report.results) < 2:
        return
    first = report.results[1]
    refused = first.total("refused")
    if not first.has_views:
        refused_all = f"{first.name} refused all {refused:,} requests: the essential messages exceed the budget; raise --max-tokens."
        out.print(refused_all if refused else "No model was called in these sessions.")
        return
    low, high = (cost - 1 for cost in first.interval("cost"))
    saved = 1 - first.measure("cost")
    dollars = ""
    if first.dollars is not None:
        full_dollars = first.total("full_cost") / 1e6  # of the requests that were not refused
        dollars = f", {abs(full_dollars - first.dollars):,.2f} of {full_dollars:,.2f} dollars"
    verb, (low, high) = ("saved", (-high, -low)) if saved >= 0 else ("added", (low, high))
    interval = f" (95 % interval {low:.0%} to {high:.0%})" if report.sessions > 1 else ""
    uncounted = f" It refused {refused:,} requests, which are not counted." if refused else ""
    out.print(f"{first.name} would have {verb} {abs(saved):.0%} of the input cost{dollars}{interval}.{uncounted}")


def show_tuning(tuning: Tuning) -> None:
    out = console()
    out.print(f"tried {tuning.tried} settings for {tuning.goal} on {tuning.search.sessions:,} sessions")
    out.print(f"best: {tuning.policy}")
    out.print(f"on the other {tuning.test.sessions:,} sessions:")
    _print_table(out, tuning.test)
    names = [result.name for result in tuning.test.results if result.name != FULL]
    if len(names) < 2:
        out.print("the default is the best of the settings that were tried")
        return
    for measure in ("cost", "cost with re-reads", "names", "quotes"):
        out.print(f"{measure}: {_difference(tuning.test, names[0], names[1], measure)}")
    settings = "".join(f", {name}: {value}" for name, value in tuning.settings.items())
    out.print(f"in llm_config.yaml:\n  policies:\n    tuned:\n      manager: {{name: token_budget{settings}}}")


def _difference(report: Report, first: str, second: str, measure: str) -> str:
    low, high = report.difference(first, second, measure)
    if low <= 0 <= high:
        return f"no difference shown ({low:+.3f} to {high:+.3f})"
    return f"{low:+.3f} to {high:+.3f} (95 % interval)"


def show_difference(report: Report, rows: Sequence[tuple[str, str, str, Sequence[Miss], Sequence[Miss]]]) -> None:
    """Two policies in total, then the sessions in which they differ most, with the lines that only one of them missed."""
    out = console()
    first, second = (result.name for result in report.results[1:])
    out.print(f"{report.sessions:,} sessions, {report.messages:,} messages, budget {report.budget:,} tokens")
    _print_table(out, report)
    for measure in ("cost", "cost with re-reads", "names", "quotes", "requests", "constraints", "decisions"):
        out.print(f"{measure}, {second} minus {first}: {_difference(report, first, second, measure)}")
    for session, costs, cuts, only_first, only_second in rows:
        out.print(f"\n{session}: cost {costs}, cuts {cuts}", style="bold")
        for policy, misses in ((first, only_first), (second, only_second)):
            for miss in misses:
                out.print(f"  missed only by {policy}: message {miss.source}, used in answer {miss.call}", markup=False)
                out.print(f"    {one_line(miss.text, 160)}", style="dim", markup=False)
    if not rows:
        out.print("the two policies have the same cost and misses in every session")


def show_shadow(groups: Sequence[ShadowGroup]) -> None:
    out = console()
    for group in groups:
        name, budget = group.policy["name"], group.policy["max_tokens"]
        limit = f", at most {budget:,} tokens" if budget else ""
        cached = (
            f", of which the provider read {group.reported_cached / group.reported:.0%} from its cache"
            if group.reported
            else ""
        )
        out.print(
            f"{name}{limit}: {len(group.conversations):,} conversations, {group.requests:,} requests in shadow mode with "
            f"{group.tokens_sent:,} tokens of messages{cached}",
            soft_wrap=True,
        )
        if group.report is None:
            out.print(
                "its settings are not recorded; replay it with minutebook lab DB --policy llm_config.yaml",
                soft_wrap=True,
            )
            continue
        _print_table(out, group.report, with_details=True)
        out.print(_legend(group.report), style="dim")
        _print_savings(out, group.report)
