"""What `minutebook demo --serve` shows of its story."""

from rich import box
from rich.table import Table
from rich.text import Text

from minutebook.cli.demostory import Story
from minutebook.cli.screen import console, percent

_ROWS = 10
_WIDTH = 30


def show_story(story: Story) -> None:
    """Print how a session went that was kept whole and sent in parts."""
    out = console()
    out.print(Text("The record keeps everything. The view is what the model reads.", "bold"))
    out.print(
        f"\nA coding agent's {story.turns} turns went through the service with the official openai client, which\n"
        f"resends its whole history each time. The provider behind it refuses more than {story.window:,} tokens.\n"
        "(Client, service, database and provider are real and ran here; the model read from a script.)\n"
    )
    out.print(_course(story))
    out.print(_sums(story))
    out.print(Text("\nThe last request, beside the record", "bold"))
    out.print(_beside(story))
    out.print("Everything is stopped again, and its database is gone. Yours begins with: minutebook serve")


def _course(story: Story) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("request", justify="right")
    table.add_column("whole history", justify="right")
    table.add_column("sent", justify="right")
    table.add_column("sent of the whole", no_wrap=True)
    most = max(story.whole)
    last = len(story.sent) - 1
    for place in sorted({round(step * last / (_ROWS - 1)) for step in range(_ROWS)}):
        whole, sent = story.whole[place], story.sent[place]
        bar = Text("█" * max(1, round(_WIDTH * sent / most)), "green")
        bar.append("░" * round(_WIDTH * max(0, whole - sent) / most), "dim")
        table.add_row(f"{place + 1}", f"{whole:,}", f"{sent:,}", bar)
    return table


def _sums(story: Story) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column()
    table.add_column(justify="right", style="bold green")
    over = sum(whole > story.window for whole in story.whole)
    for what, figure in (
        ("messages in the record", f"{story.record:,}"),
        ("  all that the client said and heard", "yes" if story.complete else "NO"),
        ("requests", f"{story.requests:,}"),
        ("  that the provider refused", f"{story.refused:,}"),
        ("  that it would have refused with the whole history", f"{over:,}"),
        ("largest request, tokens", f"{max(story.sent):,}"),
        ("tokens with the whole history each time", f"{sum(story.whole):,}"),
        ("tokens sent", f"{sum(story.sent):,}"),
        ("  of the whole", percent(sum(story.sent), sum(story.whole))),
    ):
        table.add_row(what, figure)
    return table


def _beside(story: Story) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("messages", justify="right")
    table.add_column("were")
    table.add_column("why")
    rows: list[tuple[int, str, str, str]] = []
    rows += [(part[0], _range(*part), "sent", "") for part in story.last["sent"] if isinstance(part, list)]
    rows += [
        (part["start"], _range(part["start"], part["stop"]), part["status"], part["reason"])
        for part in story.last["left_out"]
    ]
    rows.sort()
    for _, messages, fate, why in (
        rows if len(rows) <= 2 * _ROWS else [*rows[:_ROWS], (0, "…", "…", "…"), *rows[-_ROWS:]]
    ):
        table.add_row(messages, Text(fate, "green" if fate == "sent" else "yellow"), why)
    return table


def _range(start: int, stop: int) -> str:
    return f"{start}" if stop == start + 1 else f"{start}-{stop - 1}"
