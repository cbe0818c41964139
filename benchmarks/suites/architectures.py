"""Architectures of timm and transformers with random weights: nothing is downloaded.

Both packages are needed for this alone: `pip install --no-deps timm`, `pip install transformers`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

TIMM = (
    "cait_xxs24_224", "coat_lite_tiny", "convnext_atto", "crossvit_tiny_240", "cspresnet50",
    "densenet121", "edgenext_xx_small", "efficientnet_b0", "fastvit_t8", "ghostnet_100",
    "gmlp_s16_224", "halonet26t", "hrnet_w18_small", "inception_v3", "lcnet_050", "levit_128s",
    "mixer_s32_224", "mobilenetv2_100", "mobilenetv3_small_100", "mobilevit_xxs", "nf_resnet26",
    "poolformer_s12", "pvt_v2_b0", "regnety_002", "repvgg_a0", "res2net50_26w_4s", "resnet50",
    "sequencer2d_s", "swin_tiny_patch4_window7_224", "vit_tiny_patch16_224",
)  # fmt: skip
_WIDTH = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
_STACK = {**_WIDTH, "num_hidden_layers": 2, "vocab_size": 1000}
_PAIRS = {
    "vocab_size": 1000, "d_model": 256, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
    "decoder_start_token_id": 2, "use_cache": False,
}  # fmt: skip
_TEXT, _TOKENS = ("input_ids", "attention_mask"), 64
TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    "albert": ("AlbertConfig", "AlbertModel", {**_STACK, "embedding_size": 64}, _TEXT),
    "bart": ("BartConfig", "BartModel", _PAIRS, (*_TEXT, "decoder_input_ids")),
    "bert": ("BertConfig", "BertModel", _STACK, _TEXT),
    "distilbert": (
        "DistilBertConfig", "DistilBertModel",
        {"vocab_size": 1000, "dim": 256, "n_layers": 2, "n_heads": 4, "hidden_dim": 1024}, _TEXT,
    ),
    "electra": ("ElectraConfig", "ElectraModel", {**_STACK, "embedding_size": 64}, _TEXT),
    "gpt2": (
        "GPT2Config", "GPT2LMHeadModel",
        {"vocab_size": 1000, "n_embd": 256, "n_layer": 2, "n_head": 4, "use_cache": False}, _TEXT,
    ),
    "llama": (
        "LlamaConfig", "LlamaForCausalLM",
        {**_STACK, "num_key_value_heads": 2, "use_cache": False}, _TEXT,
    ),
    "mamba": (
        "MambaConfig", "MambaModel",
        {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 1, "state_size": 8,
         "use_cache": False}, _TEXT[:1],
    ),
    "mpnet": ("MPNetConfig", "MPNetModel", _STACK, _TEXT),
    "qwen3": (
        "Qwen3Config", "Qwen3ForCausalLM",
        {**_STACK, "num_key_value_heads": 2, "head_dim": 64, "use_cache": False}, _TEXT,
    ),
    "roberta": ("RobertaConfig", "RobertaModel", _STACK, _TEXT),
    "segformer": (
        "SegformerConfig", "SegformerForSemanticSegmentation", {"depths": [1, 1, 1, 1]},
        ("pixel_values",),
    ),
    "t5": (
        "T5Config", "T5ForConditionalGeneration",
        {"vocab_size": 1000, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 2,
         "num_heads": 4, "use_cache": False},
        (*_TEXT, "decoder_input_ids"),
    ),
    "vit": (
        "ViTConfig", "ViTModel", {**_WIDTH, "num_hidden_layers": 2, "image_size": 64},
        ("pixel_values",),
    ),
    "wav2vec2": (
        "Wav2Vec2Config", "Wav2Vec2Model", {**_STACK, "vocab_size": 32}, ("input_values",),
    ),
    "whisper": (
        "WhisperConfig", "WhisperModel",
        {**_PAIRS, "max_source_positions": 100, "num_mel_bins": 20},
        ("input_features", "decoder_input_ids"),
    ),
}  # fmt: skip
"""The classes of a configuration and of a model, the configuration, the names of the inputs."""


def make(name: str) -> tuple[Any, dict[str, Any] | tuple[Any, ...]]:
    """A model in inference mode, and inputs for it: "timm:resnet50", "transformers:bert"."""
    import torch

    torch.manual_seed(0)
    package, _, which = name.partition(":")
    _stub_torchvision()
    if package == "timm":
        import timm

        model = timm.create_model(which, pretrained=False)
        return model.eval(), (torch.randn(1, *model.default_cfg["input_size"]),)
    import transformers

    config, kind, options, names = TRANSFORMERS[which]
    model = getattr(transformers, kind)(getattr(transformers, config)(**options))
    return model.eval(), {word: _INPUTS[word](torch) for word in names}


def _padded(torch: Any) -> Any:
    mask = torch.ones(1, _TOKENS, dtype=torch.long)
    mask[:, -_TOKENS // 8 :] = 0
    return mask


_INPUTS: dict[str, Callable[[Any], Any]] = {
    "input_ids": lambda torch: torch.randint(3, 999, (1, _TOKENS)),
    "decoder_input_ids": lambda torch: torch.randint(3, 999, (1, 8)),
    "attention_mask": _padded,
    "pixel_values": lambda torch: torch.randn(1, 3, 64, 64),
    "input_values": lambda torch: torch.randn(1, 4000),
    "input_features": lambda torch: torch.randn(1, 20, 200),
}


def _stub_torchvision() -> None:
    """Define what torchvision registers, where its own code does not load (PyPI's beside torch's
    CPU build): both packages import it, for operators that these models do not use."""
    import torch

    with suppress(ImportError, RuntimeError):
        import torchvision  # noqa: F401

        return
    if "torchvision" in _LIBRARIES:
        return
    _LIBRARIES["torchvision"] = library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool",
                 "deform_conv2d"):  # fmt: skip
        for each in (name, f"_{name}_backward"):
            library.define(f"{each}(Tensor x) -> Tensor")


_LIBRARIES: dict[str, Any] = {}
"""Libraries of operators, which live as long as these objects."""
