"""Options and tables of `minutebook lab`. The commands are in `cli/commands/lab.py`."""
