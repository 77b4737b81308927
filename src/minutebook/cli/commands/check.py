"""`minutebook check`: what a provider would refuse."""

from typing import Any

import click

from minutebook.cli.exits import FINDINGS, Command
from minutebook.cli.files import Reading
from minutebook.cli.options import emit, file_argument, flag, is_json, json_option, provider_option
from minutebook.cli.progress import progress
from minutebook.record.finding import MEANING, REJECTED_BY
from minutebook.record.validation import check


@click.command("check", cls=Command, short_help="What a provider would refuse.")
@file_argument
@provider_option(everyone=True, help_text="Whose rules to check by; all means any of them.")
@json_option(
    "Print one JSON document: the conversations that have findings, and a summary. Example: minutebook check log.jsonl --json"
)
@flag("-q", "--quiet", help_text="Print nothing but the summary. Example: minutebook check -q log.jsonl")
def command(file: str, provider: str, quiet: bool) -> int:
    """Say what a provider would refuse in each conversation of FILE.

    An error is what the provider answers with status 400; a warning is what only another provider would refuse. The
    exit code is 6 when there are errors and 0 when there are none: warnings alone are 0.

    Example: minutebook check log.jsonl.gz --provider anthropic
    """
    tally = {"conversations": 0, "messages": 0, "with_findings": 0, "errors": 0, "warnings": 0}
    reports = []
    with progress(file) as advance:
        for conversation in Reading(file, advance):
            findings = _findings(conversation.messages, provider)
            errors = sum(finding["severity"] == "error" for finding in findings)
            tally["conversations"] += 1
            tally["messages"] += len(conversation.messages)
            tally["with_findings"] += bool(findings)
            tally["errors"] += errors
            tally["warnings"] += len(findings) - errors
            if findings and is_json():
                place = {"index": conversation.place, "id": conversation.id, "line": conversation.line}
                reports.append({**place, "messages": len(conversation.messages), "findings": findings})
            elif findings and not quiet:
                _print(conversation.name, findings, everyone=provider == "all")
    emit({"provider": provider, "conversations": reports, "summary": tally}, _summary(tally, provider))
    return FINDINGS if tally["errors"] else 0


def _findings(messages: list[Any], provider: str) -> list[dict[str, Any]]:
    # Anthropic minds everything, so its findings are the ones that any provider minds.
    found = check(messages, provider="anthropic" if provider == "all" else provider)  # type: ignore[arg-type]
    return [
        {
            "kind": finding.kind.value,
            "severity": finding.severity.value,
            "message": finding.index,
            "call_id": finding.call_id,
            "meaning": MEANING[finding.kind],
            "refused_by": [name for name, kinds in REJECTED_BY.items() if finding.kind in kinds],
        }
        for finding in found
    ]


def _print(name: str, findings: list[dict[str, Any]], *, everyone: bool) -> None:
    click.echo(click.style(name, bold=True))
    for finding in findings:
        colour = "red" if finding["severity"] == "error" else "yellow"
        severity = click.style(f"{finding['severity']:<7}", fg=colour)
        which = f" ({finding['call_id']!r})" if finding["call_id"] else ""
        refused = f" [{', '.join(finding['refused_by'])}]" if everyone else ""
        click.echo(f"  {severity}  message {finding['message']}: {finding['meaning']}{which}{refused}")


def _summary(tally: dict[str, int], provider: str) -> str:
    rules = "any provider" if provider == "all" else provider
    text = f"{_many(tally['conversations'], 'conversation')}, {_many(tally['messages'], 'message')}: "
    if not tally["with_findings"]:
        return f"{text}nothing that {rules} would refuse"
    return (
        f"{text}{_many(tally['errors'], 'error')} and {_many(tally['warnings'], 'warning')} "
        f"in {_many(tally['with_findings'], 'conversation')} by the rules of {rules}"
    )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
