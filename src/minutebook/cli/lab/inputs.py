"""What all commands of `minutebook lab` share: the sessions to replay, the policies, and the progress bar."""

import errno
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from minutebook.cli.options import count_option, format_option, models_file_option, tenant_option
from minutebook.cli.progress import bytes_progress
from minutebook.errors import InvalidSetting, MissingSetting, UnreadableInput
from minutebook.lab.peers import PEERS, peer_policies
from minutebook.lab.policies import BUDGET_POLICIES, PolicySpec, configured_policies, file_policies
from minutebook.lab.prompt_cache import Billing, billing_of
from minutebook.lab.report import DEFAULT_BUDGET, Report
from minutebook.lab.sessions import RecordedSession, input_files, load_sessions
from minutebook.store.encryption.marker import read_key
from minutebook.tokens.models import ModelTable, load_models

DEFAULT_POLICIES = (*BUDGET_POLICIES, "token_budget:target=0.3", "sliding_window:40", "tool_result_clearer")


@dataclass
class LabInput:
    """The options of a run: where the sessions are, and how they are replayed."""

    paths: Sequence[str]
    budget: int
    min_messages: int
    jobs: int | None
    model: str | None
    models_file: str | None
    tenant: str
    from_format: str | None = None
    skipped: list[UnreadableInput] = field(default_factory=list)
    _advance: Callable[[int], None] = lambda _count: None

    @cached_property
    def models(self) -> ModelTable:
        """The user's own table of models."""
        return load_models(self.models_file) if self.models_file else {}

    @property
    def billing(self) -> Billing | None:
        """The prices of `--model`; None for those of each session's model."""
        if self.model is None:
            return None
        billing = billing_of(self.model, self.models)
        if billing.model is None:
            expected = (
                "a model with known prices, as `minutebook models` lists them; without it, typical prices are used"
            )
            raise InvalidSetting("--model", self.model, expected)
        return billing

    def sessions(self) -> Iterator[RecordedSession]:
        """All sessions, read one at a time."""
        key_file = os.environ.get("MINUTEBOOK_ENCRYPTION_KEY_FILE")
        self.skipped.clear()
        return load_sessions(
            self.paths,
            min_messages=self.min_messages,
            model=self.model,
            models=self.models,
            format=self.from_format,
            tenant=self.tenant,
            encryption_key=read_key(key_file) if key_file else None,
            skipped=self.skipped,
            advance=self._advance,
        )

    @contextmanager
    def progress(self, rounds: int = 1) -> Iterator[None]:
        """Show a progress bar in this block, in which the sessions are read this many times."""
        files = [Path(file) for path in self.paths for file in input_files(path) if "://" not in str(file)]
        total = sum(file.stat().st_size for file in files if file.is_file())
        with bytes_progress("replaying", total * rounds) as advance:
            self._advance = advance
            yield

    def require_sessions(self, report: Report) -> None:
        """Raise `MissingSetting` if no session was replayed."""
        if not report.sessions:
            unread = f" ({len(self.skipped):,} files or parts of files could not be read)" if self.skipped else ""
            advice = "use a smaller --min-messages" if self.min_messages > 1 else "pass a path that has sessions"
            raise MissingSetting(f"a session with {self.min_messages:,} or more messages{unread}", advice)

    def print_skipped(self) -> None:
        for error in self.skipped[:3]:
            click.echo(f"skipped {error}", err=True)
        if len(self.skipped) > 3:
            click.echo(f"skipped {len(self.skipped) - 3:,} more files or parts of files that cannot be read", err=True)


def lab_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """PATH… and the options of a replay. The command is called with `lab_input`, a `LabInput`."""

    @click.argument("paths", metavar="PATH…", nargs=-1, required=True)
    @format_option
    @count_option(
        "--max-tokens", default=DEFAULT_BUDGET, help_text="Budget of a view in tokens. Example: --max-tokens 64000"
    )
    @count_option("--min-messages", default=1, help_text="Leave shorter sessions out. Example: --min-messages 60")
    @count_option("--jobs", help_text="Number of processes. Default: one per core. Example: --jobs 1")
    @click.option(
        "--model",
        metavar="MODEL",
        help="Model whose tokenizer, prices and cache rules are used. Default: the model that a session names; without one, "
        "typical relative prices. Example: --model claude-sonnet-4-5",
    )
    @models_file_option
    @tenant_option("Tenant whose conversations of a database are replayed.")
    @functools.wraps(function)
    def call(*arguments: Any, max_tokens: int, **options: Any) -> Any:
        names = ("paths", "min_messages", "jobs", "model", "models_file", "tenant", "from_format")
        _require_paths(options["paths"])
        lab_input = LabInput(budget=max_tokens, **{name: options.pop(name) for name in names})
        return function(*arguments, lab_input=lab_input, **options)

    return call  # fmt: skip


def _require_paths(paths: Sequence[str]) -> None:
    for path in paths:
        if "://" not in path and not Path(path).exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def policy_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--policy` and `--peer`, the arguments of `policies_from_options`."""
    policy = click.option(
        "--policy", "policies", metavar="POLICY|FILE", multiple=True, type=click.Path(),
        help="A manager or strategy by name; a YAML file with `policies`, as in the service's configuration; or a Python file: "
        "FILE.py with POLICIES, a dict from names to functions that take the budget and return a manager, or FILE.py:NAME. "
        f"Can be repeated. Default: {', '.join(DEFAULT_POLICIES)}. Example: --policy token_budget:target=0.3",
    )  # fmt: skip
    peer = click.option(
        "--peer", "peers", metavar="PEER", multiple=True,
        help=f"Also replay with another library, if it is installed: {', '.join(PEERS)}. Can be repeated. Example: --peer langchain",
    )  # fmt: skip
    return policy(peer(function))


def policies_from_options(policies: Sequence[str], peers: Sequence[str], budget: int) -> dict[str, PolicySpec]:
    """The policies of `--policy` and `--peer` by name; the default ones if there is neither."""
    found: dict[str, PolicySpec] = {}
    for text in policies or (() if peers else DEFAULT_POLICIES):
        found |= policies_from_text(text, budget)
    for peer in peers:
        found |= peer_policies(peer)
    return found


def policies_from_text(text: str, budget: int) -> dict[str, PolicySpec]:
    """The policies that one `--policy` names: one, or all of a file."""
    if text.endswith((".yaml", ".yml")):
        from minutebook.service.config.loader import load_config

        configured = configured_policies(load_config(text, environment={}).config, budget)
        if not configured:
            raise UnreadableInput(
                text, "has no policies; add them under the key policies, each with a manager or strategy"
            )
        return dict(configured)
    if text.endswith(".py") or ".py:" in text:
        return dict(file_policies(text, budget))
    return {text: text}
