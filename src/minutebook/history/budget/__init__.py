"""The recommended manager: views within a token budget. Start with `manager`, then `view`."""

from minutebook.history.budget.manager import PRESETS, TokenBudgetManager

__all__ = ["PRESETS", "TokenBudgetManager"]
