"""`encode_documents`: lists and iterators, one device or several, processes that die."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Iterator
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from helpers import calls, tiny
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

import evenspan
from evenspan.encoding import fallback, processes
from evenspan.models import batches, features, windows

TEXTS = [tiny.text(3 + number % 40, number) for number in range(60)]
SETTING = evenspan.Calibration(strength=1.0, basket_size=16)


@pytest.fixture
def small_windows(monkeypatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 10)


def test_a_list_gives_an_array(cls_model) -> None:
    evenspan.calibrate(cls_model, SETTING)
    vectors = evenspan.encode_documents(cls_model, TEXTS, progress=False)
    assert (vectors.shape, vectors.dtype) == ((60, 32), np.float32)
    np.testing.assert_allclose(vectors, cls_model.encode_document(TEXTS), atol=2e-6)
    prompted = evenspan.encode_documents(
        cls_model, tuple(TEXTS), prompt="w9 ", normalize_embeddings=True, progress=False
    )
    np.testing.assert_allclose(prompted, cls_model.encode_document(TEXTS, prompt="w9 "), atol=2e-6)
    assert evenspan.encode_documents(cls_model, np.array(TEXTS), progress=False).shape == (60, 32)
    assert evenspan.encode_documents(cls_model, [], progress=False).shape == (0, 32)


def test_an_iterator_gives_arrays_and_holds_little(cls_model, small_windows, monkeypatch) -> None:
    read = []
    arrays = evenspan.encode_documents(cls_model, (read.append(text) or text for text in TEXTS), progress=False)
    first = next(arrays)
    assert (len(first), len(read)) == (10, 10)
    received = np.concatenate([first, next(arrays)])
    arrays.close()
    rest = evenspan.encode_documents(cls_model, itertools.islice(TEXTS, len(received), None), progress=False)
    together = np.concatenate([received, *rest])
    np.testing.assert_array_equal(together, np.concatenate(list(evenspan.encode_documents(cls_model, iter(TEXTS)))))
    np.testing.assert_allclose(together, cls_model.encode_document(TEXTS), atol=2e-6)
    monkeypatch.setattr(batches.BatchRunner, "ahead", property(lambda _: True, lambda *_: None), raising=False)
    read.clear()
    ahead = evenspan.encode_documents(cls_model, (read.append(text) or text for text in TEXTS), progress=False)
    first = next(ahead)
    assert 10 <= len(read) <= 40, "no more than a few windows are read in a thread beside the device"
    np.testing.assert_array_equal(np.concatenate([first, *ahead]), together)


def test_the_setting_is_that_of_the_beginning(cls_model, small_windows) -> None:
    long = [tiny.text(100, seed) for seed in range(30)]
    evenspan.calibrate(cls_model, SETTING)
    expected = evenspan.encode_documents(cls_model, long, progress=False)
    arrays = evenspan.encode_documents(cls_model, iter(long), progress=False)
    first = next(arrays)
    evenspan.restore(cls_model)
    np.testing.assert_allclose(np.concatenate([first, *arrays]), expected, atol=2e-6)
    plain = evenspan.encode_documents(cls_model, iter(long), progress=False)
    first = next(plain)
    evenspan.calibrate(cls_model, SETTING)
    vectors = np.concatenate([first, *plain])
    assert np.abs(vectors - expected).max() > 1e-3
    evenspan.restore(cls_model)
    np.testing.assert_allclose(vectors, cls_model.encode_document(long), atol=2e-6)


def test_a_stream_of_a_model_that_is_not_standard_is_of_one_setting(cls_model, small_windows) -> None:
    cls_model[0].processing_kwargs = {"text": {"truncation": True}}
    with evenspan.calibrated(cls_model, SETTING):
        arrays = evenspan.encode_documents(cls_model, iter(TEXTS), progress=False)
        next(arrays)
    with pytest.raises(RuntimeError, match="changed in the middle of a call"):
        next(arrays)


def test_a_list_of_a_model_that_is_not_standard_is_of_one_setting(cls_model, monkeypatch) -> None:
    cls_model[0].processing_kwargs = {"text": {"truncation": True}}
    evenspan.calibrate(cls_model, SETTING)
    encode = fallback.OwnEncode.batch

    def restored_behind(own: fallback.OwnEncode, *args: object) -> np.ndarray:
        vectors = encode(own, *args)
        evenspan.restore(cls_model)
        return vectors

    monkeypatch.setattr(fallback.OwnEncode, "batch", restored_behind)
    with pytest.raises(RuntimeError, match="changed in the middle of a call"):
        evenspan.encode_documents(cls_model, TEXTS, batch_tokens=200, progress=False)


def test_a_stream_of_a_model_that_shares_a_transformer_is_of_one_setting(cls_model, small_windows) -> None:
    long = [tiny.text(100, seed) for seed in range(30)]
    other = SentenceTransformer(modules=list(cls_model), device="cpu")
    with evenspan.calibrated(cls_model, SETTING):
        expected = cls_model.encode_document(long)
        arrays = evenspan.encode_documents(other, iter(long), progress=False)
        first = next(arrays)
    np.testing.assert_allclose(np.concatenate([first, *arrays]), expected, atol=2e-6)


def test_a_shared_transformer_is_not_calibrated_for_another_pooling(cls_model) -> None:
    other = SentenceTransformer(modules=[cls_model[0], Pooling(32, "mean")], device="cpu")
    evenspan.calibrate(cls_model, SETTING)
    with pytest.raises(
        RuntimeError, match=r"evenspan.restore\(model\) before its modules become part of another model"
    ):
        evenspan.encode_documents(other, TEXTS, progress=False)


def test_a_stream_that_begins_after_its_block_is_an_error(cls_model) -> None:
    with evenspan.calibrated(cls_model, SETTING):
        arrays = evenspan.encode_documents(cls_model, iter(TEXTS), progress=False)
    with pytest.raises(RuntimeError, match=r"the model had soft.* and it now has no calibration"):
        next(arrays)
    arrays = evenspan.encode_documents(cls_model, iter(TEXTS), progress=False)
    with (
        evenspan.calibrated(cls_model, SETTING),
        pytest.raises(RuntimeError, match="the model had no calibration, and"),
    ):
        next(arrays)


def test_memory_that_runs_out_is_survived(cls_model, monkeypatch) -> None:
    expected = cls_model.encode_document(TEXTS)
    batches = calls.watch(monkeypatch, most=4)
    np.testing.assert_allclose(evenspan.encode_documents(cls_model, TEXTS, progress=False), expected, atol=2e-6)
    assert max(calls.sizes(batches)) > 4


def test_errors_in_texts_reach_the_caller(cls_model) -> None:
    def texts():
        yield from TEXTS
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="gone"):
        list(evenspan.encode_documents(cls_model, texts(), progress=False))


def test_bad_arguments_are_refused(cls_model) -> None:
    with pytest.raises(TypeError, match="not one string"):
        evenspan.encode_documents(cls_model, "a text")
    with pytest.raises(TypeError, match="Expected a SentenceTransformer, not str"):
        evenspan.encode_documents("a model", TEXTS)
    with pytest.raises(TypeError, match=r"such as \['cuda:0'\]"):
        evenspan.encode_documents(cls_model, TEXTS, devices="cuda:0")
    with pytest.raises(ValueError, match="Cannot use device 'cuda:99'"):
        evenspan.encode_documents(cls_model, TEXTS, devices=["cpu", "cuda:99"], progress=False)
    with pytest.raises(ValueError, match="batch_tokens must be at least 1"):
        evenspan.encode_documents(cls_model, TEXTS, batch_tokens=0)
    with pytest.raises(TypeError, match="the one at 2 is of type NoneType"):
        evenspan.encode_documents(cls_model, ["a", "b", None])
    with pytest.raises(TypeError, match="the one at 1 is of type list"):
        list(evenspan.encode_documents(cls_model, iter(["a", ["b"]]), progress=False))


def test_two_processes_one_of_which_is_killed(cls_model, small_windows, caplog, monkeypatch) -> None:
    evenspan.calibrate(cls_model, SETTING)
    long = [tiny.text(40 + number % 60, number) for number in range(200)]
    expected = evenspan.encode_documents(cls_model, long, progress=False)
    started = []
    start = processes.Worker.start
    monkeypatch.setattr(processes.Worker, "start", lambda *given: started.append(start(*given)) or started[-1])
    arrays = evenspan.encode_documents(cls_model, iter(long), devices=["cpu", "cpu"], progress=False)
    with caplog.at_level(logging.ERROR, logger="evenspan"):
        received = [next(arrays)]
        victim = next(worker for worker in started if worker.windows)
        os.kill(victim.process.pid, signal.SIGKILL)
        received += arrays
    np.testing.assert_allclose(np.concatenate(received), expected, atol=2e-6)
    assert re.search(rf"Process \d \(pid {victim.process.pid}\) on cpu died \(exit code -9\): the others", caplog.text)
    assert not any(worker.process.is_alive() for worker in started)


def test_the_last_process_that_dies_is_an_error(cls_model, monkeypatch) -> None:
    def dying(number: int, device: str, *_: object) -> processes.Worker:
        process = multiprocessing.get_context("spawn").Process(target=os._exit, args=(3,))
        own, its = multiprocessing.Pipe()
        process.start()
        its.close()
        return processes.Worker(f"Process {number} on {device}", process, own)

    monkeypatch.setattr(processes.Worker, "start", dying)
    with pytest.raises(RuntimeError, match=r"Process 2 on cpu died \(exit code 3\), and no other is left"):
        evenspan.encode_documents(cls_model, TEXTS, devices=["cpu", "cpu"], progress=False)


@pytest.mark.parametrize(("texts", "sizes"), [(TEXTS, [20, 20, 20]), (TEXTS[:4], [2, 2]), (iter(TEXTS), [60])])
def test_every_process_gets_a_part_of_a_short_list(texts, sizes, cls_model, monkeypatch) -> None:
    given = []

    def encode(_: object, parts: Iterator[list[str]]) -> Iterator[np.ndarray]:
        return (given.append(len(part)) or np.zeros((len(part), 32), dtype=np.float32) for part in parts)

    monkeypatch.setattr(processes.Worker, "start", lambda *_: Mock())
    monkeypatch.setattr(processes.ProcessPool, "encode", encode)
    list(evenspan.encode_documents(cls_model, texts, devices=["cpu"] * 3, progress=False))
    assert given == sizes


def test_a_model_that_cannot_be_copied_to_a_process(cls_model) -> None:
    cls_model.lock = threading.Lock()
    with pytest.raises(TypeError, match=r"cannot be copied to another process: .*lock.* leave `devices` out"):
        evenspan.encode_documents(cls_model, TEXTS, devices=["cpu"], progress=False)
    del cls_model.lock
    cls_model.register_forward_hook(lambda *_: None)
    with pytest.raises(TypeError, match=r"cannot be copied to another process: .*lambda.* leave `devices` out"):
        evenspan.encode_documents(cls_model, TEXTS, devices=["cpu"], progress=False)


def test_an_error_in_a_process_is_told(cls_model) -> None:
    with torch.no_grad():
        cls_model[0].auto_model.embeddings.LayerNorm.weight.fill_(torch.nan)
    own, its = multiprocessing.Pipe()
    thread = threading.Thread(target=processes._work, args=(cls_model, "cpu", {}, its))
    thread.start()
    assert own.recv() == (None, None, None), "it is ready"
    own.send((0, TEXTS))
    assert own.recv()[2].startswith("RuntimeError: The model returned a vector that is not finite")
    own.close()
    thread.join(timeout=600)
    assert not thread.is_alive()


def test_a_process_tokenizes_the_next_window_while_it_encodes_one(cls_model, monkeypatch) -> None:
    second, (early, late) = threading.Event(), (TEXTS[:30], TEXTS[30:])
    tokenize, launch = features.TextFeatures.tokenize, batches.BatchRunner.launch

    def tokenized(own: features.TextFeatures, texts: list[str]) -> features.TokenizedTexts:
        if texts == late:
            second.set()
        return tokenize(own, texts)

    def launched(own: batches.BatchRunner, window: batches.Window) -> batches.Launched:
        assert second.wait(20), "the next window is not tokenized"
        return launch(own, window)

    expected = cls_model.encode_document(TEXTS)
    monkeypatch.setattr(features.TextFeatures, "tokenize", tokenized)
    monkeypatch.setattr(batches.BatchRunner, "launch", launched)
    own, its = multiprocessing.Pipe()
    thread = threading.Thread(target=processes._work, args=(cls_model, "cpu", {"unit": False}, its), daemon=True)
    thread.start()
    with own:
        assert own.recv() == (None, None, None), "it is ready"
        for number, texts in enumerate((early, late)):
            own.send((number, texts))
        for number, texts in enumerate((early, late)):
            answered, encoded, error = own.recv()
            assert (answered, error) == (number, None)
            np.testing.assert_allclose(encoded[0], expected[30 * number :][:30], atol=2e-6)
            assert encoded[1] == list(map(len, cls_model.tokenizer(texts)["input_ids"]))
    thread.join(timeout=600)


@pytest.mark.parametrize("as_list", [True, False])
def test_truncation_is_said_aloud(as_list, cls_model) -> None:
    texts = [tiny.text(20), tiny.text(300), tiny.text(30)]

    def encoded(chosen: list[str], **options: object) -> object:
        found = evenspan.encode_documents(cls_model, chosen if as_list else iter(chosen), progress=False, **options)
        return found if as_list else list(found)

    words = r"Truncated after 254 tokens of text: 1 of 3 documents \(33 %\); 13 % of the text"
    with pytest.warns(UserWarning, match=words) as caught:
        encoded(texts)
    assert len(caught) == 1
    encoded(texts, on_truncate="ignore")
    encoded(texts[:1])
    with pytest.raises(ValueError, match=f"{words}.* set on_truncate to 'warn' or 'ignore'"):
        encoded(texts, on_truncate="raise")
    with pytest.raises(ValueError, match="on_truncate must be one of warn, raise, ignore, not 'cut'"):
        encoded(texts, on_truncate="cut")
