"""The `minutebook` command. `main` has the table of commands; a command's module is imported when the command is called.

`commands` has one file per command, `chat` is the interactive one. The other modules are shared by commands.
"""
