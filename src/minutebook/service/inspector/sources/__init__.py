"""Where conversations come from: files in any format, or a store with recorded requests. Start with `files.py`."""
