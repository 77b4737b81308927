from minutebook.errors import UnknownVocabulary
from minutebook.tokens.counter import MessageCounter
from minutebook.tokens.media import OPENAI, MediaPrices
from minutebook.tokens.vocabulary import VOCABULARIES, encoder


class ExactCounter(MessageCounter):
    """Counts with a model's own vocabulary.

    The vocabulary is loaded at the first count, not before. Text that spells out a special token (`<|endoftext|>`)
    is counted as the text it is.

    Raises:
        UnknownVocabulary: there is no vocabulary of that name.
    """

    __slots__ = ("media", "vocabulary")

    def __init__(self, vocabulary: str = "o200k_base", media: MediaPrices = OPENAI) -> None:
        if vocabulary not in VOCABULARIES:
            raise UnknownVocabulary(vocabulary, VOCABULARIES)
        self.vocabulary = vocabulary
        self.media = media

    @property
    def name(self) -> str:
        return self.vocabulary

    def count(self, text: str) -> int:
        return encoder(self.vocabulary).count(text)

    def _facts(self) -> tuple[str, MediaPrices]:
        return self.vocabulary, self.media
