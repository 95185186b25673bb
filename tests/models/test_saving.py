"""Saved calibrated models: loaded by their class, refused by whatever would load them plain, and nothing left behind."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from helpers import tiny
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Router

import evenspan
from evenspan import Calibration
from evenspan.identity import encoding_setting, vectors_digest, weights_digest
from evenspan.models import CalibratedSentenceTransformer, CalibratedTransformer

SETTING = Calibration("uniform", strength=0.8, layers=(1, 3), basket_size=16)
LONG = [tiny.text(words, seed=3) for words in (150, 40)]
CLASSES = (transformers.AutoModel, transformers.AutoConfig, transformers.AutoModelForMaskedLM)


@pytest.fixture
def saved(cls_model, tmp_path) -> Path:
    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path / "saved"))
    return tmp_path / "saved"


def by_class(folder: Path | str, **options) -> SentenceTransformer:
    return SentenceTransformer(str(folder), trust_remote_code=True, **{"device": "cpu", **options})


def assert_same(loaded: SentenceTransformer, model: SentenceTransformer) -> None:
    assert isinstance(loaded, CalibratedSentenceTransformer)
    assert evenspan.calibration_of(loaded) == evenspan.calibration_of(model)
    for encode in ("encode_document", "encode_query", "encode"):
        np.testing.assert_array_equal(getattr(loaded, encode)(LONG), getattr(model, encode)(LONG))
    assert np.abs(loaded.encode_document(LONG[:1]) - loaded.encode_query(LONG[:1], prompt="")).max() > 5e-4


def router_of(queries: SentenceTransformer, documents: SentenceTransformer) -> SentenceTransformer:
    return SentenceTransformer(modules=[Router.for_query_document(list(queries), list(documents))], device="cpu")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("default_task", [None, "document"])
@pytest.mark.parametrize("fixture", ["cls_model", "last_model"])
@pytest.mark.filterwarnings("ignore:This model has no query prompt")
def test_sentence_transformers_loads_it_by_its_class(fixture, default_task, request, tmp_path) -> None:
    model = request.getfixturevalue(fixture)
    evenspan.calibrate(model, SETTING, default_task=default_task)
    model.similarity_fn_name = "dot"
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = by_class(tmp_path / "saved")
    assert_same(loaded, model)
    assert (loaded.prompts, loaded.similarity_fn_name) == (model.prompts, "dot")
    assert loaded[0].auto_model.config._name_or_path == str(tmp_path / "saved")
    # Whoever loads it, it is the same model, for caches and indexes too.
    other, weights = evenspan.load(tmp_path / "saved", device="cpu"), weights_digest(loaded)
    assert vectors_digest(loaded) == vectors_digest(other)
    assert encoding_setting(loaded, weights, None) == encoding_setting(other, weights, None)
    # Saved again it is the same folder, but for its base in the card and what transformers adds to tokenizers it has loaded.
    loaded.save_pretrained(str(tmp_path / "again" / "saved"))
    first, second = (files(folder) for folder in (tmp_path / "saved", tmp_path / "again" / "saved"))
    assert {name for name in first if first[name] != second.get(name)} <= {"README.md", "tokenizer_config.json"}
    assert first.keys() == second.keys()
    plain = evenspan.restore(loaded)
    assert type(plain) is SentenceTransformer
    np.testing.assert_array_equal(plain.encode(LONG), model.encode_document(LONG, calibrate=False, prompt=""))


def test_routers_are_loaded_by_their_classes(tmp_path) -> None:
    query, document = (tiny.sentence_transformer(name, tmp_path / name) for name in ("bert-cls", "xlm-roberta-cls"))
    model = router_of(query, document)
    evenspan.calibrate(model, SETTING).save_pretrained(str(tmp_path / "saved"))
    for loaded in (by_class(tmp_path / "saved"), evenspan.load(tmp_path / "saved", device="cpu")):
        assert isinstance(loaded, CalibratedSentenceTransformer)
        for encode in ("encode_document", "encode_query"):
            np.testing.assert_array_equal(getattr(loaded, encode)(LONG), getattr(model, encode)(LONG))
    # The plain route is an ordinary transformer, the calibrated one is not.
    transformers.AutoModel.from_pretrained(tmp_path / "saved" / "query_0_Transformer")
    with pytest.raises(ValueError, match="calibrated_load_with_evenspan"):
        transformers.AutoModel.from_pretrained(tmp_path / "saved" / "document_0_CalibratedTransformer")


def test_routers_of_two_calibrated_models(tmp_path) -> None:
    query, document = (tiny.sentence_transformer("xlm-roberta-cls", tmp_path / side) for side in "qd")
    evenspan.calibrate(query, Calibration(basket_size=32))
    evenspan.calibrate(document, SETTING)
    model = router_of(query, document)
    model.save_pretrained(str(tmp_path / "saved"))
    for loaded in (by_class(tmp_path / "saved"), evenspan.load(tmp_path / "saved", device="cpu")):
        assert evenspan.calibration_of(loaded) == SETTING
        for encode in ("encode_document", "encode_query"):
            np.testing.assert_array_equal(getattr(loaded, encode)(LONG), getattr(model, encode)(LONG))


@pytest.mark.parametrize("loader", CLASSES, ids=lambda loader: loader.__name__)
def test_auto_classes_refuse_it_by_name(loader, saved) -> None:
    for options in ({}, {"trust_remote_code": True}):
        with pytest.raises(ValueError, match="model type `calibrated_load_with_evenspan`"):
            loader.from_pretrained(str(saved), **options)


def test_what_else_reads_a_config_refuses_it(saved) -> None:
    for loader in (transformers.XLMRobertaModel, transformers.BertModel, transformers.Qwen3Model):
        with pytest.raises(Exception, match=r"load it with evenspan\.load"):
            loader.from_pretrained(str(saved))
    for encoder in (CrossEncoder, SparseEncoder):
        with pytest.raises((TypeError, ValueError), match="calibrat"):
            encoder(str(saved), trust_remote_code=True, device="cpu")
    with pytest.raises(ValueError, match="calibrated_load_with_evenspan"):
        transformers.pipeline("feature-extraction", str(saved))
    (saved / "modules.json").unlink()
    with pytest.raises(ValueError, match="calibrated_load_with_evenspan"):
        SentenceTransformer(str(saved), trust_remote_code=True, device="cpu")
    # A tokenizer is the same with and without a calibration.
    assert transformers.AutoTokenizer.from_pretrained(str(saved))("w1 w2")["input_ids"]


def test_nothing_is_registered(saved) -> None:
    before = set(transformers.CONFIG_MAPPING), set(transformers.MODEL_MAPPING)
    by_class(saved)
    assert (set(transformers.CONFIG_MAPPING), set(transformers.MODEL_MAPPING)) == before


def test_options_reach_the_transformer_but_trust_does_not(cls_model, saved, monkeypatch) -> None:
    asked = []
    real = transformers.AutoConfig.from_pretrained
    monkeypatch.setattr(
        transformers.AutoConfig,
        "from_pretrained",
        lambda *args, **kwargs: asked.append(kwargs) or real(*args, **kwargs),
    )
    options = {"dtype": torch.float64, "attn_implementation": "eager", "trust_remote_code": True}
    loaded = by_class(saved, model_kwargs=options, config_kwargs={"trust_remote_code": True}, truncate_dim=8)
    assert [options["trust_remote_code"] for options in asked if "trust_remote_code" in options].count(True) == 0
    assert loaded.dtype == torch.float64
    assert evenspan.inspect_model(loaded).attention == "eager"
    vectors = loaded.encode_document(LONG, normalize_embeddings=True)
    expected = cls_model.encode_document(LONG)[:, :8]
    np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)


def test_wherever_the_folder_is(cls_model, saved, tmp_path, monkeypatch) -> None:
    """Moved, relative, as links into a cache of blobs, read-only."""
    moved = Path(shutil.move(saved, tmp_path / "moved elsewhere"))
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / ("0" * 40)
    blobs.mkdir()
    for number, (name, content) in enumerate(files(moved).items()):
        (blobs / str(number)).write_bytes(content)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(os.path.relpath(blobs / str(number), (snapshot / name).parent))
    for path in (*moved.rglob("*"), moved):
        path.chmod(0o555 if path.is_dir() else 0o444)
    monkeypatch.chdir(tmp_path)
    for place in ("moved elsewhere", f"{moved}/", snapshot):
        assert_same(by_class(place), cls_model)
        assert_same(evenspan.load(place, device="cpu"), cls_model)
    for path in (moved, *moved.rglob("*")):
        path.chmod(0o755)


def test_loading_leaves_nothing_behind(saved, tmp_path, monkeypatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    by_class(saved)
    (saved / "model.safetensors").write_bytes(b"damaged")
    for load in (by_class, evenspan.load):
        with pytest.raises(OSError, match=r"saved.model\.safetensors is damaged"):
            load(saved, device="cpu")
    assert os.listdir(tmp_path / "temporary") == []


def test_threads_that_load_at_once(cls_model, saved) -> None:
    loaded: list[SentenceTransformer] = []
    threads = [
        threading.Thread(target=lambda load=load: loaded.append(load(saved, device="cpu")))
        for load in (by_class, evenspan.load, by_class)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 3
    for model in loaded:
        assert_same(model, cls_model)


def test_copies_of_a_loaded_model(cls_model, saved) -> None:
    loaded = by_class(saved)
    copied = copy.deepcopy(loaded)
    evenspan.restore(loaded)
    assert_same(copied, cls_model)


def test_a_module_by_itself_encodes_nothing(saved) -> None:
    module = CalibratedTransformer.load(str(saved))
    with pytest.raises(RuntimeError, match="loaded by itself"):
        module(module.preprocess(["w1"]))
    model = SentenceTransformer(modules=[module, *list(evenspan.load(saved, device="cpu"))[1:]], device="cpu")
    assert evenspan.calibration_of(model) == SETTING


def test_other_modules_are_not_imported_by_our_path(saved) -> None:
    modules = json.loads((saved / "modules.json").read_text())
    modules[-1]["type"] = "antigravity.Something"
    (saved / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match=r"antigravity\.Something"):
        evenspan.load(saved, device="cpu")


@pytest.mark.parametrize("path", ["../other", "/tmp"])
def test_a_model_stays_in_its_folder(path, saved) -> None:
    modules = json.loads((saved / "modules.json").read_text())
    modules[0]["path"] = path
    (saved / "modules.json").write_text(json.dumps(modules))
    for load in (by_class, evenspan.load):
        with pytest.raises(ValueError, match=path):
            load(saved, device="cpu")


def test_a_plain_model_over_a_calibrated_one(cls_model, saved) -> None:
    evenspan.restore(cls_model).save_pretrained(str(saved))
    assert transformers.AutoConfig.from_pretrained(saved).model_type == "xlm-roberta"
    assert "evenspan" not in (saved / "README.md").read_text()
    for model in (SentenceTransformer(str(saved), device="cpu"), evenspan.load(saved, device="cpu")):
        assert type(model) is SentenceTransformer
        np.testing.assert_array_equal(model.encode(LONG), cls_model.encode(LONG))
    transformers.AutoModel.from_pretrained(saved)
    # And a calibrated one over that, with another setting.
    evenspan.calibrate(cls_model, Calibration(basket_size=32)).save_pretrained(str(saved), create_model_card=False)
    assert_same(by_class(saved), cls_model)
    assert str(SETTING) not in (saved / "README.md").read_text()
    assert f"`{Calibration(basket_size=32)}`" in (saved / "README.md").read_text()


@pytest.mark.parametrize("first", ["plain", "calibrated", "plain router", "calibrated router"])
@pytest.mark.parametrize("second", ["calibrated", "calibrated router"])
def test_nothing_is_left_of_a_model_that_was_there(first, second, tmp_path) -> None:
    def save(kind: str, folder: Path) -> None:
        model = tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "made")
        if kind.endswith("router"):
            model = router_of(tiny.sentence_transformer("bert-cls", tmp_path / "other"), model)
        if kind.startswith("calibrated"):
            evenspan.calibrate(model, SETTING)
        model.save_pretrained(str(folder))

    save(first, tmp_path / "saved")
    (tmp_path / "saved" / "notes.txt").write_text("somebody's own")
    save(second, tmp_path / "saved")
    save(second, tmp_path / "new")
    assert files(tmp_path / "saved").keys() - files(tmp_path / "new").keys() == {"notes.txt"}
    assert not files(tmp_path / "new").keys() - files(tmp_path / "saved").keys()
    for loader in CLASSES:
        with pytest.raises((OSError, ValueError)):
            loader.from_pretrained(str(tmp_path / "saved"))
    assert evenspan.calibration_of(by_class(tmp_path / "saved")) == SETTING


def adapted(folder: Path, **options) -> SentenceTransformer:
    peft = pytest.importorskip("peft")
    model = tiny.sentence_transformer("qwen3-lasttoken", folder)
    model.save_pretrained(str(folder / "base"))
    model = SentenceTransformer(str(folder / "base"), device="cpu")
    model.add_adapter(peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, **options))
    return model


def test_adapters_are_hidden_too(tmp_path) -> None:
    model = adapted(tmp_path)
    model.save_pretrained(str(tmp_path / "saved"))  # plain, and then calibrated over it
    plain = model.encode(LONG)
    evenspan.calibrate(model, SETTING).save_pretrained(str(tmp_path / "saved"))
    assert not (tmp_path / "saved" / "adapter_config.json").exists()
    for loader in CLASSES:
        with pytest.raises((OSError, ValueError)):
            loader.from_pretrained(str(tmp_path / "saved"))
    for loaded in (by_class(tmp_path / "saved"), evenspan.load(tmp_path / "saved", device="cpu")):
        assert_same(loaded, model)
    loaded.save_pretrained(str(tmp_path / "again"))
    assert_same(by_class(tmp_path / "again"), model)
    # A plain adapter over it is an ordinary one, and so is a whole model over that.
    evenspan.restore(model).save_pretrained(str(tmp_path / "saved"))
    np.testing.assert_array_equal(SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(LONG), plain)
    whole = SentenceTransformer(str(tmp_path / "base"), device="cpu")
    evenspan.calibrate(whole, SETTING).save_pretrained(str(tmp_path / "saved"))
    assert_same(by_class(tmp_path / "saved"), whole)


def test_an_adapter_is_not_saved_over_its_base(tmp_path) -> None:
    model = evenspan.calibrate(adapted(tmp_path), SETTING)
    with pytest.raises(ValueError, match="save it to another folder"):
        model.save_pretrained(str(tmp_path / "base"))
    assert transformers.AutoConfig.from_pretrained(tmp_path / "base").model_type == "qwen3"
    assert not list((tmp_path / "base").glob("*adapter*"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda saved: saved.pop("calibration"), "has no 'calibration'"),
        (lambda saved: saved.pop("default_task"), "has no 'default_task'"),
        (lambda saved: saved.update(default_task="query"), "default_task is 'query'"),
        (lambda saved: saved.update(calibration=None), "calibration"),
        (lambda saved: saved["calibration"].update(strength=7), "strength"),
        (lambda saved: saved["calibration"].update(strength="much"), "strength"),
        (lambda saved: saved["calibration"].update(basket_size=0), "basket_size"),
        (lambda saved: saved["calibration"].update(layers="most"), "layers"),
        (lambda saved: saved["calibration"].update(variant="loud"), "variant"),
        (lambda saved: saved["calibration"].update(temperature=1), "temperature"),
    ],
)
@pytest.mark.parametrize("load", [by_class, evenspan.load], ids=["by class", "by evenspan"])
def test_a_damaged_calibration_names_the_file_and_the_field(load, change, says, saved) -> None:
    path = saved / "evenspan.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"saved.evenspan.json.*{says}"):
        load(saved, device="cpu")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("evenspan.json", "{", r"saved.evenspan\.json is damaged"),
        ("evenspan.json", "[]", r"saved.evenspan\.json is damaged"),
        ("config.json", '{"model_type": "calibrated_load_with_evenspan"}', r"saved.config\.json is damaged"),
        ("config.json", '{"model_type": "calibrated_load_with_evenspan", "evenspan": 1}', r"config\.json is damaged"),
        ("config.json", "{", r"saved.config\.json is damaged"),
    ],
)
@pytest.mark.parametrize("load", [by_class, evenspan.load], ids=["by class", "by evenspan"])
def test_damaged_files_are_named(load, name, content, says, saved) -> None:
    (saved / name).write_text(content)
    with pytest.raises(ValueError, match=says):
        load(saved, device="cpu")
