"""A conversation as one HTML file, with or without its texts. Start with `export.py`."""
