"""The `minutebook` command. `main` has the table of commands; each is imported when it is called.

`commands` has one file per command, `chat` the interactive one; the rest is shared by commands.
"""
