"""Signatures on thinking blocks, which make them tamper-evident.

A signature holds a digest of the text and of the prompt it was thought after, and a digest of both that says it is one
of ours. So any loopback provider recognises what another one signed, as a conversation may outlive the server.
"""

import base64
from hashlib import sha256

MAKER = "minutebook loopback provider"


def sign(text: str, prompt: str) -> str:
    """The signature of a thought that came after the prompt with this digest."""
    parts = (_digest(text), prompt, _digest(f"{MAKER} {_digest(text)} {prompt}"))
    return base64.b64encode(".".join(parts).encode()).decode()


def is_untouched(text: str, signature: str) -> bool:
    """Whether we signed exactly this text."""
    parts = _opened(signature)
    if parts is None:
        return False
    said, prompt, seal = parts
    return said == _digest(text) and seal == _digest(f"{MAKER} {said} {prompt}")


def prompt_of(signature: str) -> str:
    """The digest of the prompt that the thought came after."""
    parts = _opened(signature)
    return parts[1] if parts else ""


def _opened(signature: str) -> list[str] | None:
    try:
        parts = base64.b64decode(signature, validate=True).decode().split(".")
    except ValueError:
        return None
    return parts if len(parts) == 3 else None


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()
