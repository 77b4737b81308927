"""Views with a limit that is lowered when the provider reports a context overflow."""

from collections.abc import Sequence
from typing import Final

from minutebook.errors import CannotFit, ContextOverflow, MinutebookError, PromptEvaluationError
from minutebook.history.protocol import HistoryManager, SessionProtocol
from minutebook.history.view import View, view_of
from minutebook.record.fold import Fold
from minutebook.record.message import Provider
from minutebook.record.transcript import Transcript

_MARGIN: Final = 0.9
"""Share of the reported limit that is used, because our counts and the provider's differ."""
_UNKNOWN_OVERFLOW_SHARE: Final = 0.6
"""Share of the view that remains if the provider does not report its limit."""


class AdaptiveViewBuilder:
    """Builds the views of one evaluation."""

    def __init__(
        self,
        manager: HistoryManager | None,
        *,
        session: SessionProtocol,
        provider: Provider,
        max_tokens: int | None,
        prompt_name: str,
        strict: bool = False,
        keep_parts: bool = False,
    ) -> None:
        self._manager = manager
        self._session = session
        self._provider: Provider = provider
        self._prompt_name = prompt_name
        self._strict = strict
        self._keep_parts = keep_parts
        self.max_tokens = max_tokens

    def view(self, record: Transcript, folds: Sequence[Fold]) -> View:
        """The view to send now.

        Raises:
            CannotFit: the required messages exceed the limit.
            GuaranteeViolated: the builder is strict, and the manager's view violates a guarantee.
            PromptEvaluationError: the manager raised.
        """
        try:
            return view_of(
                record,
                self._manager,
                session=self._session,
                folds=folds,
                max_tokens=self.max_tokens,
                provider=self._provider,
                strict=self._strict,
                keep_parts=self._keep_parts,
            )
        except PromptEvaluationError as error:
            raise PromptEvaluationError(self._prompt_name, error.phase, error.problem) from error.__cause__
        except MinutebookError:
            raise
        except Exception as error:  # managers can be user code
            problem = f"{type(error).__name__}: {error}"
            raise PromptEvaluationError(self._prompt_name, "request", problem) from error

    def lower_limit(self, view: View, overflow: ContextOverflow) -> None:
        """Lower `max_tokens` so that the next view should fit the provider's context window, by our count."""
        if overflow.tokens and overflow.maximum and overflow.tokens > overflow.maximum:
            share = _MARGIN * overflow.maximum / overflow.tokens
        elif overflow.maximum and overflow.maximum < view.tokens:
            share = _MARGIN * overflow.maximum / view.tokens
        else:
            share = _UNKNOWN_OVERFLOW_SHARE
        self.max_tokens = max(1, int(view.tokens * share))

    def require_shorter_view(self, view: View, overflow: ContextOverflow, folds: Sequence[Fold]) -> None:
        """Check after the last attempt whether the view could have been shortened further.

        Raises:
            CannotFit: it could not.
        """
        self.lower_limit(view, overflow)
        try:
            self.view(view.record, folds)
        except CannotFit as error:
            raise error from overflow
