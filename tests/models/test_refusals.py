"""What cannot be calibrated says so at once, says why and what to do, and leaves the model as it was."""

from __future__ import annotations

import pytest
import torch
import transformers
from helpers import tiny
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from sentence_transformers.sparse_encoder.modules import SpladePooling

import evenspan
from evenspan import Calibration
from evenspan.core.layers import AttentionLayers

SHORT = Calibration(basket_size=16)
TEXTS = [tiny.text(100), tiny.text(40)]


def refused(model: object, says: str, error: type[Exception] = ValueError, setting: Calibration = SHORT) -> None:
    """Both `calibrate` and `inspect_model` give the reason, and the model is what it was."""
    state = {type(module) for module in model.modules()} if isinstance(model, torch.nn.Module) else None
    with pytest.raises(error, match=says) as raised:
        evenspan.calibrate(model, setting)
    found = evenspan.inspect_model(model, setting)
    assert not found.calibratable
    assert found.reason == str(raised.value)
    assert found.reason in str(found)
    if state is not None:
        assert {type(module) for module in model.modules()} == state
        assert not any("_evenspan" in name for module in model.modules() for name in vars(module))


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("max", "differs from dimension to dimension"),
        (("cls", "mean"), "calibrated in another way"),
        (("cls", "lasttoken"), "calibrated in another way"),
    ],
)
def test_pooling_in_ways_that_have_no_calibration(mode, why, tmp_path) -> None:
    model = tiny.sentence_transformer("bert-cls", tmp_path, pooling=mode)
    before = model.encode(TEXTS)
    refused(model, f"{why}.*trained with one of these: cls, lasttoken, mean")
    assert (model.encode_document(TEXTS) == before).all()


def test_the_error_can_be_told_from_others(tmp_path) -> None:
    highest = tiny.sentence_transformer("bert-cls", tmp_path, pooling="max")
    refused(highest, "pools by 'max'", evenspan.UnsupportedModelError)
    with pytest.raises(evenspan.UnsupportedModelError, match="does not run on"):
        AttentionLayers.of(transformers.MPNetModel(transformers.MPNetConfig(**tiny.SIZES)), "cls")
    assert issubclass(evenspan.UnsupportedModelError, ValueError)


def test_no_pooling(tmp_path) -> None:
    tiny.sentence_transformer("bert-cls", tmp_path)
    refused(SentenceTransformer(modules=[Transformer(str(tmp_path))], device="cpu"), "no Pooling module")


@pytest.mark.parametrize("mode", ["mean", "weightedmean"])
def test_mean_pooling_of_a_causal_model(mode, tmp_path) -> None:
    refused(tiny.sentence_transformer("llama-lasttoken", tmp_path, pooling=mode), "would have baskets of its own")


def test_first_token_pooling_of_a_causal_model(tmp_path) -> None:
    refused(tiny.sentence_transformer("llama-lasttoken", tmp_path, pooling="cls"), "Pool the last token")


def test_static_embeddings() -> None:
    static = StaticEmbedding(tiny.tokenizer(first_token=True), embedding_dim=8)
    refused(SentenceTransformer(modules=[static], device="cpu"), "StaticEmbedding, which has no attention")


@pytest.mark.parametrize(
    ("config_class", "options", "says"),
    [
        ("MPNetConfig", {}, r"mpnet\) cannot be calibrated: this architecture does not run on"),
        ("DebertaV2Config", {}, r"deberta-v2\) cannot be calibrated: this architecture does not run on"),
        ("AlbertConfig", {"embedding_size": 32}, r"share a module \(albert\)"),
        (
            "GptOssConfig",
            {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1},
            "learned sinks",
        ),
        (
            "MistralConfig",
            {"sliding_window": 16, "num_key_value_heads": 2, "head_dim": 8},
            "max_seq_length to at most the window",
        ),
    ],
)
def test_architectures(config_class, options, says, tmp_path) -> None:
    pooling = "lasttoken" if config_class in ("GptOssConfig", "MistralConfig") else "cls"
    attention = "eager" if config_class in ("GptOssConfig", "DebertaV2Config", "MPNetConfig") else "sdpa"
    architecture = tiny.row(config_class, config_class, pooling, attention=attention, **options)
    refused(tiny.sentence_transformer(architecture, tmp_path), says)


def test_relative_position_bias() -> None:
    config = transformers.T5Config(vocab_size=50, d_model=16, d_kv=4, d_ff=16, num_layers=2, num_heads=4)
    with pytest.raises(ValueError, match="cannot be calibrated"):
        AttentionLayers.of(transformers.T5EncoderModel(config), "cls")


def test_other_encoders(tmp_path) -> None:
    tiny.sentence_transformer("bert-cls", tmp_path)
    masked = Transformer(str(tmp_path), transformer_task="fill-mask")
    sparse = SparseEncoder(modules=[masked, SpladePooling()], device="cpu")
    refused(sparse, "sparse, multi-vector and cross encoders", TypeError)
    refused(CrossEncoder(str(tmp_path), num_labels=1, device="cpu"), "sparse, multi-vector and cross", TypeError)


def test_multi_vector_encoders(tmp_path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers", minversion="6.0")
    tiny.sentence_transformer("bert-cls", tmp_path)
    model = sentence_transformers.MultiVectorEncoder(str(tmp_path), device="cpu")
    refused(model, "multi-vector", TypeError)


def test_other_back_ends(cls_model) -> None:
    cls_model[0].backend = "onnx"
    refused(cls_model, 'Load it with backend="torch"')


def test_models_outside_pytorch() -> None:
    with pytest.raises(TypeError, match="ONNX and OpenVINO"):
        AttentionLayers.of(torch.nn.Linear(2, 2), "cls")


def test_remote_code(cls_model) -> None:
    class Remote(type(cls_model[0].model)):
        pass

    Remote.__module__ = "transformers_modules.someone.modeling"
    cls_model[0].model.__class__ = Remote
    refused(cls_model, "runs code from its repository")


def test_code_of_its_own(cls_model) -> None:
    class Mine(SentenceTransformer):
        pass

    class MyTransformer(Transformer):
        pass

    refused(Mine(modules=list(cls_model), device="cpu"), r"SentenceTransformer\(modules=list\(model\)\)", TypeError)
    cls_model[0].__class__ = MyTransformer
    refused(cls_model, "MyTransformer with code of its own")


def test_unknown_layers(cls_model, tmp_path) -> None:
    refused(cls_model, "0 to 3", setting=Calibration(layers=(0, 4)))
    refused(cls_model, "more layers than the 4", setting=Calibration(layers=5))
    mixed = tiny.sentence_transformer("modernbert-cls", tmp_path)
    refused(mixed, r"whole passage. The model's full-attention layers are \[1, 3\]", setting=Calibration(layers=(2,)))


def test_a_first_token_that_is_the_pooling_token(cls_model, last_model, tmp_path) -> None:
    setting = Calibration("uniform", first_token="keep", basket_size=16)
    refused(cls_model, "first_token=keep has no effect on this model", setting=setting)
    with pytest.raises(ValueError, match="no effect"):
        with evenspan.calibrated(cls_model[0].auto_model, setting, pooling="cls"):
            pass
    assert evenspan.calibration_of(evenspan.calibrate(last_model, setting)) == setting
    # Models that were saved with it load, and are what they were.
    plain = Calibration("uniform", basket_size=16)
    evenspan.calibrate(cls_model, plain).save_pretrained(str(tmp_path / "saved"))
    saved = tmp_path / "saved" / "evenspan.json"
    saved.write_text(saved.read_text().replace('"first_token": null', '"first_token": "keep"'))
    loaded = evenspan.load(tmp_path / "saved", device="cpu")
    assert evenspan.calibration_of(loaded) == setting
    with evenspan.calibrated(loaded, setting):
        assert (loaded.encode_document(TEXTS) == cls_model.encode_document(TEXTS)).all()


def test_a_refusal_leaves_an_earlier_calibration(cls_model) -> None:
    evenspan.calibrate(cls_model, SHORT)
    before = cls_model.encode_document(TEXTS)
    with pytest.raises(ValueError, match="more layers"):
        evenspan.calibrate(cls_model, Calibration(layers=9))
    with pytest.raises(ValueError, match="more layers"), evenspan.calibrated(cls_model, Calibration(layers=9)):
        pass
    assert evenspan.calibration_of(cls_model) == SHORT
    assert (cls_model.encode_document(TEXTS) == before).all()


def test_wrong_arguments(cls_model) -> None:
    with pytest.raises(TypeError, match=r"Calibration.parse"):
        evenspan.calibrate(cls_model, "soft")
    with pytest.raises(ValueError, match="None or 'document', not 'query'"):
        evenspan.calibrate(cls_model, default_task="query")
    with pytest.raises(TypeError, match=r"evenspan.load"):
        evenspan.calibrate("BAAI/bge-m3")
    with pytest.raises(TypeError, match="pooling='cls', 'last' or 'mean'"):
        evenspan.calibrate(cls_model[0].auto_model)
    with pytest.raises(ValueError, match="not None"), evenspan.calibrated(cls_model[0].auto_model):
        pass
    with pytest.raises(ValueError, match="leave `pooling` and"), evenspan.calibrated(cls_model, pooling="cls"):
        pass
    with pytest.raises(TypeError, match="Expected a SentenceTransformer"):
        evenspan.restore(cls_model[0])


def test_pooling_module_replaced_after_calibration(cls_model) -> None:
    evenspan.calibrate(cls_model, SHORT)
    cls_model[1] = Pooling(32, "mean")
    with pytest.raises(RuntimeError, match="pooling module was replaced"):
        cls_model.encode_document(TEXTS)


def test_the_two_ways_do_not_mix(cls_model) -> None:
    evenspan.calibrate(cls_model, SHORT)
    before = cls_model.encode_document(TEXTS)
    with pytest.raises(ValueError, match="part of a SentenceTransformer that is calibrated"):
        with evenspan.calibrated(cls_model[0].auto_model, SHORT, pooling="cls"):
            pass
    assert (cls_model.encode_document(TEXTS) == before).all()


def test_pooling_changed_after_calibration(cls_model) -> None:
    evenspan.calibrate(cls_model, SHORT)
    cls_model[1].pooling_mode = "mean"
    with pytest.raises(RuntimeError, match=r"evenspan.calibrate\(model\) again"):
        cls_model.encode_document(TEXTS)
    assert cls_model.encode_query(TEXTS).shape == (2, 32)


def test_a_model_that_drops_keywords_is_no_silent_no_op(cls_model, monkeypatch) -> None:
    evenspan.calibrate(cls_model, SHORT)
    encoder = cls_model[0].auto_model.encoder
    forward = encoder.forward

    def forgetful(*args, calibrated_pass=None, **kwargs):
        return forward(*args, **kwargs)

    monkeypatch.setattr(encoder, "forward", forgetful)
    with pytest.raises(RuntimeError, match="reached 0 of 2"):
        cls_model.encode_document(TEXTS)


def test_a_model_that_drops_keywords_is_refused_at_once(cls_model, monkeypatch) -> None:
    encoder = cls_model[0].auto_model.encoder
    forward = encoder.forward
    monkeypatch.setattr(encoder, "forward", lambda *args, calibrated_pass=None, **kwargs: forward(*args, **kwargs))
    refused(cls_model, "reached 0 of 4 attention layers")


def test_a_model_with_two_attentions_in_a_layer_is_refused(tmp_path) -> None:
    architecture = tiny.row("diffllama", "DiffLlamaConfig", "lasttoken", num_key_value_heads=2, head_dim=8)
    refused(tiny.sentence_transformer(architecture, tmp_path), "more than one attention in a layer")


def test_encoder_decoders(tmp_path) -> None:
    """Their output comes from the decoder: what is pooled is not what the encoder would be calibrated for."""
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "decoder_start_token_id": 0}
    refused(tiny.sentence_transformer(tiny.row("bart", "BartConfig", **sizes, **heads), tmp_path), "encoder-decoder")


def test_vision_models_are_not_calibrated_in_their_vision_tower() -> None:
    text = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **text, "image_size": 16, "patch_size": 8},
        text_config={"model_type": "llama", **text, "num_key_value_heads": 2, "vocab_size": 100},
    )
    layers = AttentionLayers.of(transformers.LlavaModel(config), "last")
    assert {type(module).__name__ for module in layers.modules} == {"LlamaAttention"}


def test_a_window_that_no_text_is_longer_than_is_no_window(tmp_path) -> None:
    options = {"sliding_window": 64, "num_key_value_heads": 2, "head_dim": 8}
    model = tiny.sentence_transformer(tiny.row("mistral", "MistralConfig", "lasttoken", **options), tmp_path)
    refused(model, "max_seq_length to at most the window")
    model.max_seq_length = 64
    evenspan.calibrate(model, SHORT)
    assert abs(model.encode_document(TEXTS) - model.encode_query(TEXTS)).max() > 1e-3
    model.max_seq_length = 128
    with pytest.raises(RuntimeError, match=r"Set model\.max_seq_length to 64 or less"):
        model.encode_document(TEXTS)


def test_attention_that_is_not_softmax_of_query_and_key_is_found_out(cls_model) -> None:
    """A layer with something unknown in its attention is refused, not calibrated wrongly."""
    modeling = transformers.models.xlm_roberta.modeling_xlm_roberta

    class Biased(modeling.XLMRobertaSelfAttention):
        pass

    def biased(module, query, key, value, attention_mask, **kwargs):
        return modeling.eager_attention_forward(module, query, key * 1.5, value, attention_mask, **kwargs)

    import sys
    from types import ModuleType

    home = ModuleType("tests_biased")
    home.ALL_ATTENTION_FUNCTIONS = modeling.ALL_ATTENTION_FUNCTIONS
    home.eager_attention_forward = biased
    sys.modules["tests_biased"] = home
    Biased.__module__ = "tests_biased"
    cls_model[0].auto_model.set_attn_implementation("eager")
    attention = cls_model[0].auto_model.encoder.layer[3].attention.self
    attention.__class__ = Biased
    refused(cls_model, "Biased computes its attention in a way that evenspan does not know")
    # A model that could not be tried out is refused on its first batch.
    cls_model.train()
    evenspan.calibrate(cls_model, SHORT)
    with pytest.raises(RuntimeError, match="Biased computes its attention in a way that evenspan does not know"):
        cls_model.encode_document(TEXTS)


def test_key_value_caches_are_refused(tmp_path) -> None:
    model = tiny.sentence_transformer("qwen3-lasttoken", tmp_path)
    auto_model, ids = model[0].auto_model, model.preprocess(TEXTS[:1])["input_ids"]
    with torch.no_grad(), evenspan.calibrated(auto_model, SHORT, pooling="last"):
        cache = auto_model(input_ids=ids, use_cache=True).past_key_values
        with pytest.raises(RuntimeError, match="without a key/value cache"):
            auto_model(input_ids=ids, past_key_values=cache, use_cache=True)


def test_four_dimensional_masks_are_refused(tmp_path) -> None:
    model = tiny.sentence_transformer("bert-cls", tmp_path)
    ids = model.preprocess(TEXTS[:1])["input_ids"]
    mask = torch.ones(1, 1, ids.shape[1], ids.shape[1])
    with evenspan.calibrated(model[0].auto_model, SHORT, pooling="cls") as auto_model:
        with pytest.raises(ValueError, match="that a tokenizer returns"):
            auto_model(input_ids=ids, attention_mask=mask)


def test_pooling_module_order(tmp_path) -> None:
    """A Pooling module that is there is used, wherever it stands."""
    model = tiny.sentence_transformer("bert-cls", tmp_path)
    dense = SentenceTransformer(modules=[model[0], torch.nn.Identity(), Pooling(32, "cls")], device="cpu")
    assert evenspan.inspect_model(dense).calibratable
