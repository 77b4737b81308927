"""The inspector: web pages that show what a model was sent in each request, and why.

`source.py` is what the pages read: conversations, of files or of a store (`sources/`). `conversation.py` has
the data of one conversation, `pages/` one module per page, `templates/` its HTML and `static/` scripts and styles.
"""
