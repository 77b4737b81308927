"""`minutebook check`: check conversations against the rules of a provider."""

from collections.abc import Sequence
from typing import Any

import click

from minutebook.cli.exits import EXIT_FINDINGS, Command
from minutebook.cli.files import ConversationFiles, FileConversation
from minutebook.cli.options import InputFile, conversation_files, emit, flag, is_json, json_option, provider_option
from minutebook.record.finding import DESCRIPTIONS, REJECTED_BY


@click.command("check", cls=Command, short_help="Check conversations against provider rules.")
@conversation_files
@provider_option(allow_all=True, help_text='Provider whose rules to check, or "all".')
@json_option("Print the conversations with findings and a summary as JSON. Example: minutebook check log.jsonl --json")
@flag("-q", "--quiet", help_text="Print only the summary. Example: minutebook check -q log.jsonl")
def command(files: Sequence[InputFile], from_format: str | None, provider: str | None, quiet: bool) -> int:
    """Check each conversation of the files against the rules of a provider.

    An error is a problem for which the provider rejects the request with status 400. A warning is a problem that only
    other providers reject. The exit code is 6 if there are errors or a part of a file was not understood, else 0.

    Example: minutebook check logs/*.jsonl --provider anthropic
    """
    summary = {"conversations": 0, "messages": 0, "with_findings": 0, "errors": 0, "warnings": 0}
    reports = []
    providers = {provider} if provider else set()
    conversations = ConversationFiles(files, from_format)
    for conversation in conversations:
        providers.add(provider or conversation.format.provider)
        findings = _findings(conversation, provider)
        errors = sum(finding["severity"] == "error" for finding in findings)
        summary["conversations"] += 1
        summary["messages"] += len(conversation.messages)
        summary["with_findings"] += bool(findings)
        summary["errors"] += errors
        summary["warnings"] += len(findings) - errors
        if findings and is_json():
            reports.append({**conversation.source, "messages": len(conversation.messages), "findings": findings})
        elif findings and not quiet:
            _print_findings(conversations.title(conversation), findings, show_providers=provider == "all")
    rules = " and ".join(sorted(providers))
    document = {"provider": rules, "conversations": reports, "skipped": conversations.skipped, "summary": summary}
    emit(document, _summary_text(summary, rules))
    return conversations.report_skipped(EXIT_FINDINGS if summary["errors"] else 0)


def _findings(conversation: FileConversation, provider: str | None) -> list[dict[str, Any]]:
    return [
        {
            "kind": finding.kind.value,
            "severity": finding.severity.value,
            "message": finding.index,
            "place": conversation.place(finding.index),
            "call_id": finding.call_id,
            "meaning": DESCRIPTIONS[finding.kind],
            "rejected_by": [name for name, kinds in REJECTED_BY.items() if finding.kind in kinds],
        }
        for finding in conversation.findings(provider)
    ]


def _print_findings(name: str, findings: list[dict[str, Any]], *, show_providers: bool) -> None:
    click.echo(click.style(name, bold=True))
    for finding in findings:
        color = "red" if finding["severity"] == "error" else "yellow"
        severity = click.style(f"{finding['severity']:<7}", fg=color)
        call = f" ({finding['call_id']!r})" if finding["call_id"] else ""
        rejected_by = f" [{', '.join(finding['rejected_by'])}]" if show_providers else ""
        click.echo(f"  {severity}  {finding['place']}: {finding['meaning']}{call}{rejected_by}")


def _summary_text(summary: dict[str, int], provider: str) -> str:
    rules = "any provider" if provider == "all" else provider
    text = f"{_plural(summary['conversations'], 'conversation')}, {_plural(summary['messages'], 'message')}: "
    if not summary["with_findings"]:
        return f"{text}nothing that {rules} would reject"
    return (
        f"{text}{_plural(summary['errors'], 'error')} and {_plural(summary['warnings'], 'warning')} "
        f"in {_plural(summary['with_findings'], 'conversation')} by the rules of {rules}"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
