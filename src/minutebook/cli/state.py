"""Where the command keeps what it is not told a place for."""

import os
from pathlib import Path


def state_folder() -> Path:
    """Our part of the folder for state of the XDG rules; it may not be there yet."""
    told = os.environ.get("XDG_STATE_HOME", "")
    state = Path(told) if Path(told).is_absolute() else Path.home() / ".local" / "state"
    return state / "minutebook"
