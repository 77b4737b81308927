"""The pages, one module each: a `router`, and a `LINK` if the page belongs to a conversation.

A new page is a module here, a template, and an entry in `PAGES` of `app.py`.
"""
