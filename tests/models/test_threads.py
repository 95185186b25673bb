"""Threads and tasks that share a model: each call is wholly of one setting, and blocks never overlap silently."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.tiny import text
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer

import evenspan
from evenspan import Calibration
from evenspan.core.usage import usage_of
from evenspan.models.calibrating import uncalibrated
from evenspan.models.pipeline import Pipeline

MILD = Calibration(strength=0.5, basket_size=16)
FULL = Calibration("uniform", strength=1.0, layers="all", basket_size=16)
LONG = [text(words, seed=3) for words in (120, 60, 90, 75, 110, 100)]
OTHERS = "Another thread has this model"


@pytest.fixture(params=["cls", "last"])
def model(request) -> SentenceTransformer:
    return request.getfixturevalue(f"{request.param}_model")


def parts(model: SentenceTransformer) -> list[tuple[type, list[str]]]:
    """All that is known of a model but for its numbers: the classes of its modules, and the names of what they have."""
    return [
        (
            type(module),
            sorted(name for name in vars(module) if name not in ("_prompt_length_mapping", "_target_device")),
        )
        for module in model.modules()
    ]


def in_thread(work) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@contextmanager
def paused_in_second_batch(model: SentenceTransformer) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Let `encode`, in a thread that is not this one, stop in its second batch until it is told to go on."""
    paused, resume, here, batches = threading.Event(), threading.Event(), threading.current_thread(), itertools.count()

    def pause(*_) -> None:
        if threading.current_thread() is not here and next(batches) == 1:
            paused.set()
            assert resume.wait(600)

    hook = second_layer(model).register_forward_pre_hook(pause)
    try:
        yield paused, resume
    finally:
        resume.set()
        hook.remove()


def second_layer(model: SentenceTransformer) -> torch.nn.Module:
    return next(module for name, module in model[0].auto_model.named_modules() if name.endswith(".1"))


@pytest.mark.parametrize("began", [None, MILD])
@pytest.mark.parametrize("change", ["calibrate", "restore", "block"])
def test_a_call_keeps_the_setting_it_began_with(model, began, change) -> None:
    """Whatever becomes of the model between its batches; and nothing is taken from under it."""
    before = parts(model)
    if began is not None:
        evenspan.calibrate(model, began)
    expected, query = model.encode_document(LONG, batch_size=2), model.encode_query(LONG)
    with ThreadPoolExecutor(1) as pool, paused_in_second_batch(model) as (paused, resume):
        running = pool.submit(model.encode_document, LONG, batch_size=2)
        assert paused.wait(600)
        if change == "calibrate":
            evenspan.calibrate(model, FULL)
        elif change == "restore":
            evenspan.restore(model)
            assert evenspan.calibration_of(model) is None
        else:
            with evenspan.calibrated(model, FULL):
                inside = model.encode_document(LONG, batch_size=2)
            assert np.abs(inside - expected).max() > 1e-3
            assert evenspan.calibration_of(model) == began
        later = model.encode_document(LONG, batch_size=2)
        resume.set()
        np.testing.assert_array_equal(running.result(), expected)
    np.testing.assert_array_equal(model.encode_document(LONG, batch_size=2), later)
    assert (np.abs(later - expected).max() > 1e-3) == (
        change == "calibrate" or (change == "restore" and began is not None)
    )
    np.testing.assert_array_equal(model.encode_query(LONG), query)
    evenspan.restore(model)
    assert parts(model) == before


def test_a_model_is_restored_when_its_last_call_has_ended(model, tmp_path) -> None:
    evenspan.calibrate(model, MILD)
    with ThreadPoolExecutor(1) as pool, paused_in_second_batch(model) as (paused, resume):
        running = pool.submit(model.encode_document, LONG, batch_size=2)
        assert paused.wait(600)
        evenspan.restore(model)
        assert type(model) is not SentenceTransformer, "a call still needs it"
        with pytest.raises(RuntimeError, match="save it afterwards"):
            model.save_pretrained(str(tmp_path / "never-written"))
        twin = copy.deepcopy(model)
        resume.set()
        running.result()
    assert type(model) is SentenceTransformer
    assert type(model[0]) is Transformer
    np.testing.assert_array_equal(twin.encode_document(LONG), model.encode_document(LONG))
    assert evenspan.calibration_of(twin) is None
    assert type(evenspan.restore(twin)[0]) is Transformer


def test_a_model_that_is_calibrated_again_before_its_last_call_has_ended_stays_calibrated(model) -> None:
    evenspan.calibrate(model, FULL)
    expected = model.encode_document(LONG, batch_size=2)
    evenspan.calibrate(model, MILD)
    with ThreadPoolExecutor(1) as pool, paused_in_second_batch(model) as (paused, resume):
        running = pool.submit(model.encode_document, LONG, batch_size=2)
        assert paused.wait(600)
        evenspan.calibrate(evenspan.restore(model), FULL)
        resume.set()
        running.result()
    assert evenspan.calibration_of(model) == FULL
    np.testing.assert_array_equal(model.encode_document(LONG, batch_size=2), expected)


@pytest.mark.parametrize("outer", ["model", "module"])
def test_a_batch_by_itself_keeps_its_setting_too(model, outer) -> None:
    """A call of the model or of its first module, in the middle of which it is restored."""
    evenspan.calibrate(model, MILD)
    features = model.preprocess(LONG)
    paused, resume = threading.Event(), threading.Event()

    @torch.no_grad()
    def run() -> torch.Tensor:
        subject = model if outer == "model" else model[0]
        return subject(dict(features), task="document")["token_embeddings"]

    def wait(*_) -> None:
        if threading.current_thread() is not threading.main_thread():
            paused.set()
            assert resume.wait(600)

    expected = run()
    hook = second_layer(model).register_forward_pre_hook(wait)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        assert paused.wait(600)
        evenspan.restore(model)
        resume.set()
        torch.testing.assert_close(running.result(), expected, atol=0, rtol=0)
    hook.remove()
    assert type(model) is SentenceTransformer


def mixture(model: SentenceTransformer, seconds: float) -> None:
    before = parts(model)
    encode = {"document": model.encode_document, "query": model.encode_query}
    settings = (None, MILD, FULL)
    expected: dict[str, list[np.ndarray]] = {}
    for kind in encode:
        expected[kind] = []
        for setting in settings:
            if setting is not None:
                evenspan.calibrate(model, setting)
            expected[kind].append(getattr(model, f"encode_{kind}")(LONG, batch_size=2))
        evenspan.restore(model)
    seen = {kind: [0] * len(settings) for kind in encode}
    failures: list[str] = []
    enough, began = threading.Event(), time.monotonic()

    def work(kind: str) -> None:
        while not enough.is_set() and not failures:
            try:
                vectors = getattr(model, f"encode_{kind}")(LONG, batch_size=2)
            except Exception as error:
                failures.append(f"{kind}: {error!r}")
                raise
            off = [float(np.abs(vectors - one).max()) for one in expected[kind]]
            if min(off) > 1e-5:
                failures.append(f"{kind}: vectors of no one setting, {off}")
            seen[kind][int(np.argmin(off))] += 1

    threads = [threading.Thread(target=work, args=(kind,)) for kind in ("document", "query", "document")]
    for thread in threads:
        thread.start()
    changes = 0
    # On a slow machine it takes longer until every setting was seen.
    while time.monotonic() < began + seconds or not (all(seen["document"]) and any(seen["query"])):
        if failures or time.monotonic() > began + seconds + 300:
            break
        for change in (
            functools.partial(evenspan.calibrate, model, MILD),
            functools.partial(evenspan.calibrate, model, FULL),
            functools.partial(evenspan.restore, model),
        ):
            change()
            changes += 1
            time.sleep(0.003 * (changes % 7))
        with evenspan.calibrated(model, FULL):
            time.sleep(0.01)
    enough.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all(seen["document"]), seen
    assert sum(seen["query"]) == seen["query"][0] > 0, "queries are plain under every setting"
    evenspan.restore(model)
    assert parts(model) == before
    assert usage_of(model[0]).calls == 0


def test_threads_that_encode_while_another_calibrates_and_restores(model) -> None:
    mixture(model, seconds=3)


@pytest.mark.thorough
def test_a_minute_of_threads(model) -> None:
    mixture(model, seconds=60)


def test_blocks_of_two_threads_are_refused(model) -> None:
    before, plain = parts(model), model.encode_document(LONG)
    with evenspan.calibrated(model, MILD):
        documents = model.encode_document(LONG)

        def open_block() -> None:
            with evenspan.calibrated(model, FULL):
                pass

        def open_plain_block() -> None:
            with uncalibrated(model):
                pass

        for refused in (
            open_block,
            open_plain_block,
            lambda: evenspan.calibrate(model, FULL),
            lambda: evenspan.restore(model),
        ):
            with pytest.raises(RuntimeError, match=rf"{OTHERS} .* evenspan\.calibrate\(model\), or .* a copy"):
                in_thread(refused)
        assert evenspan.calibration_of(model) == MILD
        # Work that is handed to other threads in the block is calibrated.
        np.testing.assert_array_equal(in_thread(lambda: model.encode_document(LONG)), documents)
        with evenspan.calibrated(model, FULL), uncalibrated(model):  # within a thread they nest
            np.testing.assert_array_equal(model.encode_document(LONG), plain)
        twin = copy.deepcopy(model)  # and a copy is another model
        in_thread(lambda: evenspan.restore(twin))
    assert parts(model) == before == parts(twin)
    np.testing.assert_array_equal(model.encode_document(LONG), plain)


def test_blocks_of_plain_transformers_models(model) -> None:
    """They follow the same rules, and a call that is running when its block ends is calibrated to its end."""
    pooling = "cls" if model[1].pooling_mode == "cls" else "last"
    auto_model, features = model[0].auto_model, model.preprocess(LONG)
    inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
    before = parts(model)

    @torch.no_grad()
    def run() -> torch.Tensor:
        return auto_model(**inputs).last_hidden_state

    paused, resume = threading.Event(), threading.Event()

    def wait(*_) -> None:
        if threading.current_thread() is not threading.main_thread():
            paused.set()
            assert resume.wait(600)

    hook = second_layer(model).register_forward_pre_hook(wait)
    plain = run()
    with ThreadPoolExecutor(1) as pool:
        with evenspan.calibrated(auto_model, FULL, pooling=pooling):
            expected = run()
            running = pool.submit(run)
            assert paused.wait(600)
        torch.testing.assert_close(run(), plain, atol=0, rtol=0)
        with evenspan.calibrated(auto_model, FULL, pooling=pooling):  # also while that call is still running
            torch.testing.assert_close(run(), expected)

            def open_block() -> None:
                with evenspan.calibrated(auto_model, MILD, pooling=pooling):
                    pass

            with pytest.raises(RuntimeError, match=OTHERS):
                in_thread(open_block)
        resume.set()
        torch.testing.assert_close(running.result(), expected)
    hook.remove()
    assert parts(model) == before


def test_plain_blocks_of_several_threads_may_overlap(model) -> None:
    """They ask for the same thing, whether the model is calibrated or not; in any order they may end."""
    plain = model.encode_document(LONG)
    for calibration in (None, MILD):
        if calibration is not None:
            evenspan.calibrate(model, calibration)
        first, second = uncalibrated(model), uncalibrated(model)
        first.__enter__()
        in_thread(second.__enter__)
        for refused in (lambda: evenspan.calibrate(model, FULL), lambda: evenspan.restore(model)):
            if calibration is not None or refused.__code__.co_names[-1] == "calibrate":
                with pytest.raises(RuntimeError, match=OTHERS):
                    refused()
        first.__exit__(None, None, None)
        np.testing.assert_array_equal(model.encode_document(LONG), plain)
        in_thread(lambda block=second: block.__exit__(None, None, None))
        assert evenspan.calibration_of(model) == calibration
    assert np.abs(model.encode_document(LONG) - plain).max() > 1e-3


def test_blocks_of_two_tasks_are_refused(model) -> None:
    before = parts(model)

    async def work(calibration: Calibration) -> np.ndarray:
        with evenspan.calibrated(model, calibration):
            await asyncio.sleep(0.01)
            return await asyncio.to_thread(model.encode_document, LONG)

    async def both() -> list[object]:
        return await asyncio.gather(work(MILD), work(FULL), return_exceptions=True)

    vectors, refusal = asyncio.run(both())
    with pytest.raises(RuntimeError, match="Another task has this model"):
        raise refusal
    assert parts(model) == before
    with evenspan.calibrated(model, MILD):
        np.testing.assert_array_equal(model.encode_document(LONG), vectors)
        asyncio.run(work(FULL))  # a loop that runs inside a block is inside it
        assert evenspan.calibration_of(model) == MILD


def test_tasks_in_a_block_are_calibrated_and_cannot_change_it(model) -> None:
    before = parts(model)
    with evenspan.calibrated(model, MILD):
        expected = model.encode_document(LONG)

    async def change(work) -> None:
        work(model)

    async def main() -> tuple[list[np.ndarray], list[object]]:
        with evenspan.calibrated(model, MILD):
            vectors = await asyncio.gather(*(asyncio.to_thread(model.encode_document, LONG) for _ in range(3)))
            changes = (evenspan.restore, evenspan.calibrate)
            return vectors, await asyncio.gather(*map(change, changes), return_exceptions=True)

    vectors, refusals = asyncio.run(main())
    for of_task in vectors:
        np.testing.assert_array_equal(of_task, expected)
    assert ["Another task has this model" in str(refusal) for refusal in refusals] == [True, True]
    assert parts(model) == before


def test_blocks_of_callbacks_and_of_tasks_are_refused(model) -> None:
    """A callback of the event loop is no task, but what it leaves open is not around the tasks either."""
    before = parts(model)

    async def main() -> None:
        loop, block = asyncio.get_running_loop(), evenspan.calibrated(model, MILD)
        loop.call_soon(block.__enter__)
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="Another task"):
            evenspan.calibrate(model, FULL)
        loop.call_soon(block.__exit__, None, None, None)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert parts(model) == before


@pytest.mark.parametrize("kind", ["model", "transformer"])
def test_generators_that_take_turns_in_blocks_are_found_out(model, kind) -> None:
    before, plain = parts(model), model.encode_document(LONG)
    subject, options = model, {}
    if kind == "transformer":
        subject, options = model[0].auto_model, {"pooling": "cls" if model[1].pooling_mode == "cls" else "last"}

    def generate(calibration: Calibration) -> Iterator[None]:
        with evenspan.calibrated(subject, calibration, **options):
            yield

    with pytest.raises(RuntimeError, match="overlapped on one model"):
        list(zip(generate(MILD), generate(FULL), strict=True))
    gc.collect()
    assert parts(model) == before
    np.testing.assert_array_equal(model.encode_document(LONG), plain)
    generator = generate(MILD)
    next(generator)
    with evenspan.calibrated(subject, FULL, **options):
        generator.close()  # whoever gives up is not told
    assert parts(model) == before


def test_a_block_on_the_transformer_that_opens_while_its_model_is_calibrated(model, monkeypatch) -> None:
    """Between the trial and the calibration; the other way round the transformer's block is refused."""
    before, pooling = parts(model), "cls" if model[1].pooling_mode == "cls" else "last"
    block, last_layer = evenspan.calibrated(model[0].auto_model, MILD, pooling=pooling), Pipeline.last_layer
    monkeypatch.setattr(Pipeline, "last_layer", lambda *args: (block.__enter__(), last_layer(*args))[1])
    with pytest.raises(ValueError, match="leave that block first"):
        evenspan.calibrate(model, FULL)
    block.__exit__(None, None, None)
    assert parts(model) == before


def test_a_block_that_could_not_calibrate_again_leaves_the_earlier_calibration(model) -> None:
    evenspan.calibrate(model, MILD)
    expected = model.encode_document(LONG)
    with evenspan.calibrated(model, FULL):
        model[0].backend = "onnx"
        with pytest.raises(evenspan.UnsupportedModelError):
            evenspan.calibrate(model, MILD)
        evenspan.restore(model)
        assert evenspan.calibration_of(model) is None
    assert evenspan.calibration_of(model) == MILD
    np.testing.assert_array_equal(model.encode_document(LONG), expected)


def test_two_trials_at_once_do_not_detach_each_other(tmp_path) -> None:
    """Whoever calibrates first must not have its attention taken away by the end of the other's trial."""
    model = tiny.sentence_transformer("xlm-roberta-cls", tmp_path)
    auto_model = model[0].auto_model
    barrier = threading.Barrier(2)
    meets = itertools.count()

    def meet(*_) -> None:
        if next(meets) < 4:
            barrier.wait(600)

    hook = auto_model.encoder.register_forward_pre_hook(meet)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda setting: evenspan.calibrate(model, setting), (FULL, FULL)))
    hook.remove()
    documents = model.encode_document(LONG)
    assert np.abs(documents - evenspan.restore(model).encode_document(LONG)).max() > 1e-3
