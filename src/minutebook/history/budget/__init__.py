"""The recommended manager: views within a token budget. Start with `manager`, then `view`."""

from minutebook.history.budget.manager import TokenBudgetManager

__all__ = ["TokenBudgetManager"]
