"""The recommended manager: views within a token budget. Start with `manager`, then `view` and `selection`."""

from minutebook.history.budget.manager import TokenBudgetManager

__all__ = ["TokenBudgetManager"]
