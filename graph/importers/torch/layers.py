"""Whole layers that are one operator of torch's, taken apart before they are read.

Torch calls them on its "fast path", where `nn.TransformerEncoder` and `nn.MultiheadAttention`
infer without gradients.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.torch.complexes import complexes, has_complexes
from loopwright.graph.importers.torch.program import why_not
from loopwright.graph.importers.torch.quiet import decomposed, fake_tensors_quiet
from loopwright.packages import aten, functional, torch


def in_parts(program: Any) -> Any:
    """A program of torch.export without these operators, and those on complex numbers: the same
    one where it has none. Raises `ModelError` where layers fix a size that it has open, as torch
    finds in the parts alone."""
    if has_complexes(program):
        with fake_tensors_quiet(), suppress(Exception):  # the exporter says what it lacks
            program = decomposed(program, complexes())
    if not has_layers(program):
        return program
    with fake_tensors_quiet():
        try:
            return decomposed(program, _parts())
        except Exception as error:  # of many kinds
            raise ModelError(
                f"a transformer's layer cannot be taken apart for these sizes: {why_not(error)}"
            ) from error


def has_layers(program: Any) -> bool:
    """Return whether a program has one of these operators."""
    parts = _parts()
    return any(node.target in parts for node in program.graph.nodes)


def _parts() -> dict[Any, Any]:
    return {
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
        aten._native_multi_head_attention.default: _attention,
    }


def _encoder_layer(  # noqa: PLR0913 - torch's own signature
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    def attended(x: Any) -> Any:
        weights = qkv_weight, qkv_bias, proj_weight, proj_bias
        return _attention(x, x, x, embed_dim, num_heads, *weights, mask=mask, mask_type=mask_type)[
            0
        ]

    def fed_forward(x: Any) -> Any:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    def first(x: Any) -> Any:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Any) -> Any:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        src = src + attended(first(src))
        return src + fed_forward(second(src))
    src = first(src + attended(src))
    return second(src + fed_forward(src))


def _attention(  # noqa: PLR0913 - torch's own signature
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_head: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Any, Any]:
    if query is key and key is value:
        whole = functional.linear(query, qkv_weight, qkv_bias).chunk(3, dim=-1)
    else:
        parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
        whole = [functional.linear(x, w, b) for x, w, b in parts]
    q, k, v = (x.unflatten(-1, (num_head, -1)).transpose(1, 2) for x in whole)
    wide = torch.promote_types(q.dtype, torch.float32)  # of halves: scores may be beyond these
    scores = q.to(wide) @ k.to(wide).transpose(-2, -1) / (embed_dim // num_head) ** 0.5
    if mask is not None:
        left_out = mask.bool()  # whatever else it says: torch's does the same
        if mask_type == 1:  # of keys: (batch, keys)
            left_out = left_out[:, None, None, :]
        scores = scores.masked_fill(left_out, -torch.inf)  # NaN where all are, as torch has it
    weights = scores.softmax(-1).to(v.dtype)
    result = functional.linear((weights @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return result, query.new_empty(0)
    return result, weights.mean(1) if average_attn_weights else weights
