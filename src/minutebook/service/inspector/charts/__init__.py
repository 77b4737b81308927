"""Pictures as SVG, made here: the same for pages, exported files and downloads. Start with `timeline.py`."""
