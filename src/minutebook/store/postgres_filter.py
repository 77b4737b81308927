"""Which words a stretch of entries may have, in a byte and a half for each: a Bloom filter.

A stretch that is found is looked through anyway, so it need not be known which words it has, only which it has not. A
filter errs on one side: about one word in three hundred that is not there seems to be. It holds no word that could be read.
"""

from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Final

BITS: Final = 12
"""How many bits there are for each word."""
_PROBES: Final = 8
"""How many of them a word sets."""
_LEAST, _MOST = 8, 4096
"""How many bytes a filter has. With more words than it has room for it says yes to everything: look for yourself."""

MATCHES: Final = (
    "NOT EXISTS (SELECT FROM unnest(%s::integer[]) AS probe"
    " WHERE get_bit(words, probe %% (8 * octet_length(words))) = 0)"
)
"""A condition on a filter, given the `probes` of every word that is searched for."""


def size(words: int) -> int:
    """How many bytes a filter for so many words has."""
    return min(max(_LEAST, (words * BITS + 7) // 8), _MOST)


def filter_of(words: Collection[str]) -> bytes:
    """The filter of some words."""
    made = bytearray(size(len(words)))
    bits = 8 * len(made)
    for probe in probes(words):
        at = probe % bits
        made[at >> 3] |= 1 << (at & 7)
    return bytes(made)


def probes(words: Iterable[str]) -> list[int]:
    """What a filter is asked for each word; all remainders must be set. The same in every process and for ever."""
    found: list[int] = []
    for word in words:
        digest = int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest())
        first, step = digest >> 32, digest & 0xFFFFFFFF
        found += [(first + number * step) & 0x7FFFFFFF for number in range(_PROBES)]
    return found
