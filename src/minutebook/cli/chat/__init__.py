"""`minutebook chat`: the command, the prompt loop and its display."""
