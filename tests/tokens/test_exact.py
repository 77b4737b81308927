"""Exact counts: the ids of tiktoken, from vocabularies that need no network."""

import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiktoken
import tiktoken.registry
from hypothesis import given
from hypothesis import strategies as st

from minutebook.errors import MissingExtra, UnknownName
from minutebook.tokens import VOCABULARIES, CalibratedCounter, EstimatedCounter, ExactCounter, ScaledCounter
from minutebook.tokens import vocabulary as vocabularies
from minutebook.tokens.vocabulary import MAX_CACHED_CHARACTERS, LoadedVocabulary, cached_vocabulary, load_vocabulary
from tests.tokens.reference import fill_cache
from tests.tokens.samples import SAMPLES

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|endofprompt|>", "<|fim_prefix|>", "<|think|>", "<|start|>"]
TEXT = st.lists(st.text() | st.sampled_from([*SPECIAL, "\r\n", "  ", "'s", "\uff11\uff12", "👩‍💻", "\ufdfd"])).map(
    "".join
)
ENCODINGS = ["o200k_base", "cl100k_base"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tiktoken.Encoding]]:
    folder = tmp_path_factory.mktemp("tiktoken")
    fill_cache(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        yield {name: tiktoken.get_encoding(name) for name in ENCODINGS}


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has loaded no vocabulary and in which splintr is not installed."""
    monkeypatch.setattr(vocabularies, "_loaded", {})
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    monkeypatch.setitem(sys.modules, "splintr", None)


class Recorder:
    """A vocabulary of one token a character that remembers what it was asked to encode."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cleared = 0

    def encode(self, text: str) -> list[int]:
        self.asked.append(text)
        return list(map(ord, text.encode().decode()))

    def clear(self) -> None:
        self.cleared += 1


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("kind", SAMPLES)
def test_the_ids_are_tiktokens(reference: dict[str, tiktoken.Encoding], name: str, kind: str) -> None:
    assert list(cached_vocabulary(name)._encode(SAMPLES[kind])) == reference[name].encode_ordinary(SAMPLES[kind])


@pytest.mark.parametrize("name", ENCODINGS)
@given(text=TEXT)
def test_the_ids_of_any_text_are_tiktokens(reference: dict[str, tiktoken.Encoding], name: str, text: str) -> None:
    assert list(cached_vocabulary(name)._encode(text)) == reference[name].encode_ordinary(text)


@pytest.mark.parametrize("special", SPECIAL)
def test_a_special_token_spelled_out_counts_as_text(special: str) -> None:
    assert ExactCounter().count(special) > 1


@pytest.mark.parametrize("name", VOCABULARIES)
def test_every_vocabulary_loads_and_counts(name: str) -> None:
    assert 4 <= ExactCounter(name).count("The minutes were read and approved.") <= 12


def test_an_unknown_vocabulary_is_refused_when_it_is_named() -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'o200k_base'\? Choose one of o200k_base"):
        ExactCounter("o300k_base")


@given(st.text(alphabet=st.characters(codec=None, categories=["L", "Cs"])))
def test_half_a_surrogate_pair_counts_as_a_replacement(text: str) -> None:
    mended = text.encode("utf-8", "replace").decode()

    assert ExactCounter().count(text) == ExactCounter().count(mended)


def test_counting_a_text_again_encodes_nothing() -> None:
    recorder = Recorder()
    counting = LoadedVocabulary(recorder.encode)
    text = "the same old story " * 10

    assert counting.count(text) == counting.count("".join(list(text))) == len(text)
    assert recorder.asked == [text]


def test_what_is_remembered_is_bounded() -> None:
    recorder = Recorder()
    counting = LoadedVocabulary(recorder.encode, recorder.clear)
    size = MAX_CACHED_CHARACTERS // 8

    for number in range(40):
        counting.count(f"{number:<{size}}")
        assert sum(map(len, counting._cache)) <= MAX_CACHED_CHARACTERS
    assert recorder.cleared == 4


def test_a_text_too_large_to_remember_is_counted_and_forgotten() -> None:
    recorder = Recorder()
    counting = LoadedVocabulary(recorder.encode, recorder.clear)

    assert counting.count("x" * (MAX_CACHED_CHARACTERS + 1)) == MAX_CACHED_CHARACTERS + 1
    assert not counting._cache
    assert recorder.cleared == 1


def test_splintrs_own_memory_is_emptied_with_ours() -> None:
    counting = load_vocabulary("o200k_base")
    tokenizer = counting._clear_tokenizer_cache.__self__  # type: ignore[attr-defined]
    counting.count("antidisestablishmentarianistically " * 4 + "q" * 100)
    assert tokenizer.cache_len

    counting.count("x " * (MAX_CACHED_CHARACTERS // 2 + 1))

    assert tokenizer.cache_len == 0


def test_ten_megabytes_are_counted() -> None:
    assert ExactCounter().count("All work and no play. " * 500_000) == pytest.approx(3_000_000, rel=0.2)


def test_threads_agree_and_load_a_vocabulary_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number} {SAMPLES['code']}" for number in range(20)]
    expected = [len(load_vocabulary("o200k_base")._encode(text)) for text in texts]
    found: list[list[int]] = []
    loaded: list[str] = []
    start = threading.Barrier(4)

    def loading(name: str) -> LoadedVocabulary:
        loaded.append(name)
        return load_vocabulary(name)

    def work() -> None:
        start.wait()
        found.append([ExactCounter().count(text) for text in texts])

    monkeypatch.setattr(vocabularies, "_loaded", {})
    monkeypatch.setattr(vocabularies, "load_vocabulary", loading)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [expected] * 4
    assert loaded == ["o200k_base"]


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.usefixtures("unloaded")
def test_without_splintr_tiktoken_counts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_cache(tmp_path)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    counter = ExactCounter(name)

    assert counter.count("<|endoftext|> is text here") > 6
    assert counter.count("half a pair \ud83d" + "x" * 80) > 4


@pytest.mark.usefixtures("unloaded")
def test_without_splintr_and_tiktoken_the_missing_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)

    with pytest.raises(MissingExtra, match="tiktoken is not installed"):
        ExactCounter().count("hello")


@pytest.mark.usefixtures("unloaded")
def test_without_splintr_the_other_vocabularies_need_it() -> None:
    with pytest.raises(MissingExtra, match="splintr is not installed"):
        ExactCounter("llama3").count("hello")


@pytest.mark.usefixtures("unloaded")
def test_without_splintr_and_a_network_splintr_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "requests", None)  # what tiktoken fetches with

    with pytest.raises(MissingExtra, match="splintr is not installed"):
        ExactCounter().count("hello")


def test_counters_of_the_same_facts_are_equal() -> None:
    assert ExactCounter() == ExactCounter("o200k_base")
    assert hash(ExactCounter()) == hash(ExactCounter("o200k_base"))
    assert ExactCounter() != ExactCounter("cl100k_base")
    assert ScaledCounter(ExactCounter(), 1.2) != ScaledCounter(ExactCounter(), 1.3)
    assert ExactCounter() != EstimatedCounter()


@pytest.mark.parametrize(
    "counter",
    [
        ExactCounter("llama3"),
        EstimatedCounter(modern=True),
        ScaledCounter(ExactCounter(), 1.2),
        CalibratedCounter(ExactCounter()).observe(100, 180),
    ],
    ids=lambda counter: counter.name,
)
def test_counters_survive_pickling(counter: ExactCounter) -> None:
    copy = pickle.loads(pickle.dumps(counter))

    assert copy == counter
    assert hash(copy) == hash(counter)
    assert copy.count("hello there") == counter.count("hello there")
