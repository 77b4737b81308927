"""When and by whom an entry was said, in few bytes: what it has in common with the one before it is not written again."""

import json
from struct import Struct
from typing import Final, NamedTuple, Self

from minutebook.store.codec import Packed

COMMON: Final = 16
"""Every so many positions it is written all the same: so it is never far to where it stands."""
_HEAD: Final = Struct(">16sqB")


class Stamp(NamedTuple):
    """What an entry knows besides its message."""

    evaluation_id: bytes
    sequence: int
    created_at: int
    provider: str | None
    model: str | None

    @classmethod
    def of(cls, packed: Packed) -> Self:
        return cls(packed.evaluation_id, packed.sequence, packed.created_at, packed.provider, packed.model)

    def after(self, places: int) -> "Stamp":
        """What an entry so many places on knows, if nothing else is said there: it is the next in sequence."""
        return self._replace(sequence=self.sequence + places)

    def to_bytes(self) -> bytes:
        """Evaluation, time, how many bytes the sequence has, the sequence, and names where there are any, as JSON."""
        length = (self.sequence.bit_length() + 7) // 8
        names = (self.provider, self.model)
        said = b"" if names == (None, None) else json.dumps(names, ensure_ascii=False, separators=(",", ":")).encode()
        return _HEAD.pack(self.evaluation_id, self.created_at, length) + self.sequence.to_bytes(length) + said

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` wrote."""
        evaluation, created_at, length = _HEAD.unpack_from(data)
        stop = _HEAD.size + length
        provider, model = json.loads(data[stop:]) if len(data) > stop else (None, None)
        return cls(evaluation, int.from_bytes(data[_HEAD.size : stop]), created_at, provider, model)
