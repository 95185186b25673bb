"""The last layer run for the pooled rows alone: where it is done, that it changes nothing, and where it must not be."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from helpers import tiny
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Router
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

import evenspan
from evenspan import Calibration

SETTING = Calibration(strength=1.0, basket_size=16)
UNKNOWN = {"distilbert", "modernbert", "nomic_bert", "gemma2", "gemma3", "exaone4"}


def leaves_out_rows(model: SentenceTransformer, **options) -> bool:
    """Whether `encode` takes one token alone through linear maps of the layers, and leaves out the others."""
    watched = {
        id(module.weight)
        for name, module in model[0].named_modules()
        if isinstance(module, torch.nn.Linear) and "pooler" not in name
    }
    seen: set[int] = set()

    class Watch(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is torch.nn.functional.linear and id(args[1]) in watched:
                seen.add(args[0].flatten(0, -2).shape[0])
            return function(*args, **(kwargs or {}))

    with Watch():
        model.encode_document([tiny.text(100)], **options)
    assert max(seen) > 100
    return min(seen) == 1


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES, ids=str)
def test_every_architecture(architecture, tmp_path) -> None:
    """Where the structure is known most of the last layer is left out; where it is not, all is as ever."""
    model = tiny.sentence_transformer(architecture, tmp_path)
    classes = [type(module) for module in model.modules()]
    evenspan.calibrate(model, SETTING)
    vectors = model.encode_document(tiny.TEXTS, batch_size=3)
    assert leaves_out_rows(model) == (architecture.name not in UNKNOWN and architecture.pooling != "mean")
    features = dict(model.preprocess(tiny.TEXTS))
    with torch.no_grad():
        full = model(features, task="document")  # everything is asked for: nothing is left out
    np.testing.assert_allclose(vectors, full["sentence_embedding"].numpy(), atol=2e-6, rtol=0)
    evenspan.restore(model)
    assert [type(module) for module in model.modules()] == classes


def test_asked_for_token_embeddings_are_whole(cls_model) -> None:
    evenspan.calibrate(cls_model, Calibration(strength=1.0, layers="last", basket_size=16))
    long = tiny.text(100)
    vector = cls_model.encode_document([long], convert_to_tensor=True)
    for options in ({"output_value": "token_embeddings"}, {"output_value": None}):
        assert not leaves_out_rows(cls_model, **options)
        (got,) = cls_model.encode_document([long], **options)
        tokens = got if isinstance(got, torch.Tensor) else got["token_embeddings"]
        with evenspan.calibrated(cls_model, Calibration(strength=0.0)):
            (plain,) = cls_model.encode_document([long], output_value="token_embeddings")
        torch.testing.assert_close(tokens[1:], plain[1:], atol=2e-6, rtol=0)
        torch.testing.assert_close(torch.nn.functional.normalize(tokens[:1]), vector, atol=2e-6, rtol=0)


def test_layers_that_are_not_last_and_pipelines_that_read_tokens_run_in_full(cls_model) -> None:
    evenspan.calibrate(cls_model, Calibration(layers=(0, 1), basket_size=16))
    assert not leaves_out_rows(cls_model)
    transformer, pooling, normalize = evenspan.restore(cls_model)
    reader = SentenceTransformer(modules=[transformer, torch.nn.Identity(), pooling], device="cpu")
    evenspan.calibrate(reader, SETTING)
    assert not leaves_out_rows(reader)
    evenspan.restore(reader)
    dense = SentenceTransformer(modules=[transformer, pooling, Dense(32, 8), normalize], device="cpu")
    evenspan.calibrate(dense, SETTING)
    assert leaves_out_rows(dense)


def test_copies_keep_it(cls_model) -> None:
    evenspan.calibrate(cls_model, SETTING)
    vectors = cls_model.encode_document(tiny.TEXTS)
    for again in (copy.deepcopy(cls_model), pickle.loads(pickle.dumps(cls_model))):
        assert leaves_out_rows(again)
        np.testing.assert_array_equal(again.encode_document(tiny.TEXTS), vectors)


def test_gradients_run_it_in_full(cls_model) -> None:
    evenspan.calibrate(cls_model, SETTING)
    features = dict(cls_model.preprocess(tiny.TEXTS))
    cls_model(features, task="document", pooled_only=True)["sentence_embedding"].sum().backward()
    query = cls_model[0].auto_model.encoder.layer[-1].attention.self.query
    assert query.weight.grad is not None


def test_a_layer_that_is_not_what_it_seems_runs_in_full(cls_model) -> None:
    """The trial at calibrate time compares with the full layer: a module swapped for another is found out."""
    layer = cls_model[0].auto_model.encoder.layer[-1]
    plain = layer.forward
    layer.forward = lambda *args, **kwargs: 2 * plain(*args, **kwargs)
    evenspan.calibrate(cls_model, SETTING)
    assert not leaves_out_rows(cls_model)


def full_vectors(model: SentenceTransformer) -> np.ndarray:
    with torch.no_grad():
        return model(dict(model.preprocess(tiny.TEXTS)), task="document")["sentence_embedding"].numpy()


def test_hooks_on_what_would_be_left_out_are_run(cls_model) -> None:
    evenspan.calibrate(cls_model, SETTING)
    attention = cls_model[0].auto_model.encoder.layer[-1].attention
    hook = attention.register_forward_hook(lambda _, __, output: (output[0] * 1.5 + torch.arange(32), *output[1:]))
    vectors = cls_model.encode_document(tiny.TEXTS, batch_size=len(tiny.TEXTS))
    np.testing.assert_allclose(vectors, full_vectors(cls_model), atol=2e-6, rtol=0)
    hook.remove()
    seen = []
    attention.self.register_forward_hook(lambda *_: seen.append(1))
    cls_model.encode_document(tiny.TEXTS, batch_size=len(tiny.TEXTS))
    assert seen == [1]


LOOKED_AT = {
    "the last layer": lambda model: model[0].auto_model.encoder.layer[-1],
    "its feed-forward": lambda model: model[0].auto_model.encoder.layer[-1].intermediate,
    "its query": lambda model: model[0].auto_model.encoder.layer[-1].attention.self.query,
    "the layers": lambda model: model[0].auto_model.encoder,
    "the Transformer module": lambda model: model[0],
    "the pooling": lambda model: model[1],
    "the model": lambda model: model,
}


@pytest.mark.parametrize("early", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("where", LOOKED_AT)
def test_whoever_looks_sees_all_rows(cls_model, where, early) -> None:
    """A hook anywhere around the last layer, of either kind, before or after calibration; without it rows are saved again."""
    module = LOOKED_AT[where](cls_model)
    hook = module.register_forward_hook(lambda *_: None) if early else None
    evenspan.calibrate(cls_model, SETTING)
    hook = hook or module.register_forward_pre_hook(lambda *_: None)
    assert not leaves_out_rows(cls_model)
    hook.remove()
    assert leaves_out_rows(cls_model)


@pytest.mark.parametrize("register", [register_module_forward_hook, register_module_forward_pre_hook])
def test_whoever_looks_at_all_modules_sees_all_rows(cls_model, register) -> None:
    evenspan.calibrate(cls_model, SETTING)
    hook = register(lambda *_: None)
    try:
        assert not leaves_out_rows(cls_model)
    finally:
        hook.remove()
    assert leaves_out_rows(cls_model)


def test_whoever_looks_at_a_router_sees_all_rows(cls_model) -> None:
    router = Router.for_query_document(list(cls_model), list(cls_model))
    model = SentenceTransformer(modules=[router], device="cpu")
    evenspan.calibrate(model, SETTING)
    seen: list[torch.Tensor] = []
    hook = router.register_forward_hook(lambda _, __, output: seen.append(output["token_embeddings"]))
    model.encode_document(tiny.TEXTS[1:2])
    hook.remove()
    (whole,) = model.encode_document(tiny.TEXTS[1:2], output_value="token_embeddings")
    torch.testing.assert_close(seen[0][0], whole, atol=2e-6, rtol=0)


def test_a_hook_that_changes_a_layer_is_in_the_way_only_while_it_is_there(cls_model) -> None:
    attention = cls_model[0].auto_model.encoder.layer[-1].attention
    hook = attention.register_forward_hook(lambda _, __, output: (output[0] * 1.5 + torch.arange(32), *output[1:]))
    evenspan.calibrate(cls_model, SETTING)
    assert not leaves_out_rows(cls_model)
    hook.remove()
    assert leaves_out_rows(evenspan.calibrate(cls_model, SETTING))


def test_a_pipeline_that_is_changed_afterwards_runs_in_full(cls_model) -> None:
    class Mean(torch.nn.Module):
        def forward(self, features):
            return {**features, "sentence_embedding": features["token_embeddings"].mean(1)}

    evenspan.calibrate(cls_model, SETTING)
    cls_model[2] = Mean()
    vectors = cls_model.encode_document(tiny.TEXTS, batch_size=len(tiny.TEXTS))
    np.testing.assert_allclose(vectors, full_vectors(cls_model), atol=2e-6, rtol=0)


def test_a_pooling_of_its_own_kind_runs_in_full(cls_model) -> None:
    class MorePooling(Pooling):
        pass

    transformer, _, normalize = cls_model
    model = SentenceTransformer(modules=[transformer, MorePooling(32, "cls"), normalize], device="cpu")
    evenspan.calibrate(model, SETTING)
    assert not leaves_out_rows(model)


def test_a_forward_that_someone_keeps_survives_restore(cls_model) -> None:
    plain = cls_model.encode(tiny.TEXTS)
    evenspan.calibrate(cls_model, SETTING)
    vectors = cls_model.encode_document(tiny.TEXTS)
    layer = cls_model[0].auto_model.encoder.layer[-1]
    kept = layer.forward
    layer.forward = lambda *args, **kwargs: kept(*args, **kwargs)
    np.testing.assert_allclose(cls_model.encode_document(tiny.TEXTS), vectors, atol=2e-6, rtol=0)
    evenspan.restore(cls_model)
    np.testing.assert_array_equal(cls_model.encode(tiny.TEXTS), plain)


def test_the_trial_is_made_once(cls_model) -> None:
    calls = []
    cls_model[0].auto_model.encoder.layer[0].register_forward_hook(lambda *_: calls.append(1))
    evenspan.calibrate(cls_model, SETTING)
    tried = len(calls)
    with evenspan.calibrated(cls_model, Calibration(basket_size=8)):
        pass
    assert len(calls) == tried


def test_a_transformer_calibrated_by_itself_is_refused(cls_model) -> None:
    with evenspan.calibrated(cls_model[0].auto_model, SETTING, pooling="cls"):
        with pytest.raises(ValueError, match="leave that block first"):
            evenspan.calibrate(cls_model)
