"""How the model sees the conversation: through a manager, and narrower once the provider said that it was too much."""

from collections.abc import Sequence
from typing import Final

from minutebook.errors import CannotFit, ContextOverflow, MinutebookError, PromptEvaluationError
from minutebook.history.protocol import HistoryManager, SessionProtocol
from minutebook.history.view import View, view_of
from minutebook.record.fold import Fold
from minutebook.record.message import Provider, role_of
from minutebook.record.transcript import Transcript

_MARGIN: Final = 0.9
"""What is left of a limit that we only know by its overflow."""
_UNKNOWN: Final = 0.6
"""What is left of a view that was too long by nobody knows how much."""


class AdaptiveView:
    """Makes the views of one evaluation."""

    def __init__(
        self,
        manager: HistoryManager | None,
        *,
        session: SessionProtocol,
        provider: Provider,
        max_tokens: int | None,
        prompt_name: str,
    ) -> None:
        self._manager = manager
        self._session = session
        self._provider: Provider = provider
        self._prompt_name = prompt_name
        self.max_tokens = max_tokens

    def view(self, record: Transcript, folds: Sequence[Fold]) -> View:
        """What to send now.

        Raises:
            CannotFit: what must be in the view is larger than it may be.
            PromptEvaluationError: the manager failed.
        """
        try:
            return view_of(
                record,
                self._manager,
                session=self._session,
                folds=folds,
                max_tokens=self.max_tokens,
                provider=self._provider,
            )
        except MinutebookError:
            raise
        except Exception as error:  # a manager is anybody's code
            problem = f"{type(error).__name__}: {error}"
            raise PromptEvaluationError(self._prompt_name, "request", problem) from error

    def narrow(self, view: View, overflow: ContextOverflow) -> None:
        """From now on make views that the provider should have room for, by our own count."""
        if overflow.tokens and overflow.maximum and overflow.tokens > overflow.maximum:
            share = _MARGIN * overflow.maximum / overflow.tokens
        elif overflow.maximum and overflow.maximum < view.tokens:
            share = _MARGIN * overflow.maximum / view.tokens
        else:
            share = _UNKNOWN
        self.max_tokens = max(1, int(view.tokens * share))

    def too_long(self, view: View) -> CannotFit:
        """The error that says what the provider has no room for, though we left out all we may."""
        counter = view.record.counter
        parts = [
            (f"the {role_of(message)} message", -1 if origin is None else origin, counter.message(message))
            for origin, message in zip(view.curated.origins, view.curated, strict=True)
        ]
        return CannotFit(self.max_tokens or view.tokens, view.tokens, parts)
