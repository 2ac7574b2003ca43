# SPDX-License-Identifier: Apache-2.0
"""The tiny models: for each its config.json, how its weights are drawn, and the features its logits must depend on.

A feature is a name and a change that switches it off or gets it wrong: a function of the config, of the loaded model,
or both. make_models.py demands that each moves some logit by more than 1e-2.
"""
import dataclasses
import math
import typing

import torch

VOCABULARY = 128
WINDOW = 16


@dataclasses.dataclass(frozen=True)
class Feature:
    config: typing.Callable = None  # config dict -> config dict
    model: typing.Callable = None  # called with the loaded model
    patch: typing.Callable = None  # model -> context manager around the forward pass


@dataclasses.dataclass(frozen=True)
class Model:
    config: dict
    features: dict
    lengths: tuple = (72, )  # of the sequences
    gains: dict = dataclasses.field(default_factory=dict)  # part of a parameter's name -> gain
    shards: int = 1
    dtype: str = "float32"  # of the file; the arithmetic is FP32 on the rounded weights
    finish: typing.Callable = None  # called with the new model, to set single weights
    gguf: bool = True
    gguf_config: dict = dataclasses.field(default_factory=dict)  # what the GGUF file means instead
    gguf_note: str = ""


def changed(**values):
    return lambda config: {**config, **values}


def without(*keys):
    return lambda config: {key: value for key, value in config.items() if key not in keys}


def rope_changed(**values):
    return lambda config: {**config, "rope_scaling": {**config["rope_scaling"], **values}}


def moved_border(positions):
    """The border between short and long factors elsewhere, the factor of the attention as it was."""

    def change(config):
        border = config["original_max_position_embeddings"]
        ratio = config["max_position_embeddings"] / border
        factor = math.sqrt(1 + math.log(ratio) / math.log(border))
        scaling = {**config["rope_scaling"], "attention_factor": factor}
        return {**config, "original_max_position_embeddings": positions, "rope_scaling": scaling}

    return change


def each_module(suffix, change):
    """Calls change(module) for every module whose name ends so."""

    def apply(model):
        found = [module for name, module in model.named_modules() if name.endswith(suffix)]
        assert found, suffix
        for module in found:
            change(module)

    return apply


def fill(suffix, value):
    """Sets every parameter whose name ends so."""

    def apply(model):
        found = [parameter for name, parameter in model.named_parameters() if name.endswith(suffix)]
        assert found, suffix
        for parameter in found:
            parameter.data.fill_(value)

    return apply


def add_to(suffix, value):

    def apply(model):
        found = [parameter for name, parameter in model.named_parameters() if name.endswith(suffix)]
        assert found, suffix
        for parameter in found:
            parameter.data.add_(value)

    return apply


def bypass(*suffixes):
    """Replaces a module by the identity."""

    def change(module):
        module.forward = lambda x, *rest, **names: x

    def apply(model):
        for suffix in suffixes:
            each_module(suffix, change)(model)

    return apply


def swap_halves(suffix):
    """Exchanges the halves of a fused gate/up matrix."""

    def change(module):
        gate, up = module.weight.data.chunk(2, 0)
        module.weight.data = torch.cat([up, gate], 0)

    return each_module(suffix, change)


def swap_key_value(model):
    """Exchanges K and V inside the fused matrix of Phi-3."""

    def change(module):
        heads, kv = model.config.num_attention_heads, model.config.num_key_value_heads
        size = module.weight.shape[0] // (heads + 2 * kv)
        query, key, value = module.weight.data.split([heads * size, kv * size, kv * size], 0)
        module.weight.data = torch.cat([query, value, key], 0)

    each_module("qkv_proj", change)(model)


def head_from_embedding(model):
    model.lm_head.weight.data = model.model.embed_tokens.weight.data


def adjacent_pairs(model):
    """Permutes q and k as the GGUF files of architecture `llama` do, without the rotation that belongs to it."""
    config = model.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for name, parameter in model.named_parameters():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            rows = parameter.data
            parameter.data = rows.reshape(-1, 2, head // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def per_head_norm(model):
    """OLMo 2's QK norm taken over each head in place of the whole width."""
    size = model.config.hidden_size // model.config.num_attention_heads

    def change(module):

        def forward(x):
            heads = x.reshape(*x.shape[:-1], -1, size)
            scale = torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)
            return module.weight * (heads * scale).reshape(x.shape)

        module.forward = forward

    each_module("q_norm", change)(model)
    each_module("k_norm", change)(model)


class higher_index_wins:
    """torch.topk, but of equal values the last comes first."""

    def __init__(self, model):
        self.real = torch.topk

    def __enter__(self):
        torch.topk = lambda x, k, dim=-1: _ordered(x.flip(-1), k, x.shape[-1])

    def __exit__(self, *_):
        torch.topk = self.real


class lower_index_wins:
    """torch.topk, but of equal values the first comes first: torch leaves their order open."""

    def __init__(self, model):
        self.real = torch.topk

    def __enter__(self):
        torch.topk = lambda x, k, dim=-1: _ordered(x, k, None)

    def __exit__(self, *_):
        torch.topk = self.real


def _ordered(x, k, flipped_from):
    values, indices = torch.sort(x, dim=-1, descending=True, stable=True)
    if flipped_from is not None:
        indices = flipped_from - 1 - indices
    return values[..., :k], indices[..., :k]


def tie_experts(rows, never):
    """Makes router rows equal in pairs, and one expert the choice of no token.

    `rows`: per MoE layer the pairs of equal rows. Channel 0 of the residual stream is kept large and positive, so that
    a row that looks only at it, negatively, stays last.
    """

    def apply(model):
        model.model.embed_tokens.weight.data[:, 0] = 10.0
        gates = [module for name, module in model.named_modules() if name.endswith("mlp.gate")]
        for gate, pairs in zip(gates, rows):
            gate.weight.data[:, 0] = 0
            for first, second in pairs:
                gate.weight.data[second] = gate.weight.data[first]
            gate.weight.data[never] = 0
            gate.weight.data[never, 0] = -6
        for name, parameter in model.named_parameters():
            if name.endswith("post_attention_layernorm.weight"):
                parameter.data[0] = 1.5

    return apply


def single_expert(model):
    """The best expert alone."""
    each_module("mlp.gate", lambda gate: setattr(gate, "top_k", 1))(model)


def common(model_type, architecture, **values):
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
        **values,
    }


PAIRS = {"RoPE pairs (i, i + d/2)": Feature(model=adjacent_pairs)}
ROPE_BASE = {"RoPE base": Feature(config=changed(rope_theta=10000.0))}
WINDOW_OFF = {
    "window": Feature(config=changed(sliding_window=1000)),
    "window one longer": Feature(config=changed(sliding_window=WINDOW + 1)),
    "window one shorter": Feature(config=changed(sliding_window=WINDOW - 1)),
}

LLAMA = common("llama", "LlamaForCausalLM", num_key_value_heads=3)
LLAMA3 = common("llama", "LlamaForCausalLM", tie_word_embeddings=True, rope_theta=500000.0,
                rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 64})  # yapf: disable
QWEN2 = common("qwen2", "Qwen2ForCausalLM", tie_word_embeddings=True, rope_theta=1000000.0, rms_norm_eps=1e-6,
               sliding_window=WINDOW, use_sliding_window=False, max_window_layers=1)  # yapf: disable
GEMMA2 = without("rope_theta", "hidden_act")(
    common("gemma2", "Gemma2ForCausalLM", hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
           tie_word_embeddings=True, rms_norm_eps=1e-6, hidden_activation="gelu_pytorch_tanh", rope_theta=10000.0,
           query_pre_attn_scalar=24, attn_logit_softcapping=8.0, final_logit_softcapping=15.0, sliding_window=WINDOW,
           bos_token_id=2, eos_token_id=1, pad_token_id=0))  # yapf: disable
GEMMA3 = without("hidden_act")(
    common("gemma3_text", "Gemma3ForCausalLM", hidden_size=32, intermediate_size=64, num_hidden_layers=6,
           num_attention_heads=2, num_key_value_heads=1, head_dim=24, tie_word_embeddings=True, rms_norm_eps=1e-6,
           hidden_activation="gelu_pytorch_tanh", rope_theta=1000000.0, rope_local_base_freq=10000.0,
           rope_scaling={"rope_type": "linear", "factor": 8.0}, query_pre_attn_scalar=40, sliding_window=WINDOW,
           sliding_window_pattern=6, bos_token_id=2, eos_token_id=[1, 106], pad_token_id=0))  # yapf: disable
# As published: without what Gemma3TextConfig takes by default (KV heads, context, bases, scale, activation).
GEMMA3_VISION = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16, "sliding_window": WINDOW,
        "sliding_window_pattern": 2, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 1, "image_size": 8, "patch_size": 4, "vision_use_head": False,
    },
    "mm_tokens_per_image": 4,
    "image_token_index": 0,
    "boi_token_index": 0,
    "eoi_token_index": 0,
    "tie_word_embeddings": True,
    "bos_token_id": 2,
    "eos_token_id": [1, 106],
    "pad_token_id": 0,
    "initializer_range": 0.02,
    "torch_dtype": "float32",
}  # yapf: disable


def text_changed(**values):
    """The same change inside of text_config."""
    return lambda config: {**config, "text_config": {**config["text_config"], **values}}


PHI3 = common("phi3", "Phi3ForCausalLM", intermediate_size=64, rope_scaling=None, sliding_window=WINDOW,
              original_max_position_embeddings=256, pad_token_id=0)  # yapf: disable
LONGROPE = common("phi3", "Phi3ForCausalLM", intermediate_size=64, partial_rotary_factor=0.75,
                  tie_word_embeddings=True, sliding_window=None, original_max_position_embeddings=32, pad_token_id=0,
                  rope_scaling={"type": "longrope", "short_factor": [1.0, 1.05, 1.2, 1.5, 1.9, 2.5],
                                "long_factor": [1.1, 1.4, 2.2, 4.0, 6.5, 8.0]})  # yapf: disable
SMOLLM3 = common("smollm3", "SmolLM3ForCausalLM", intermediate_size=64, num_hidden_layers=4, tie_word_embeddings=True,
                 rope_theta=2000000.0, rms_norm_eps=1e-6, no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4,
                 use_sliding_window=False, sliding_window=None, attention_bias=False, mlp_bias=False, pad_token_id=0,
                 layer_types=["full_attention"] * 4)  # yapf: disable
GRANITE = common("granite", "GraniteForCausalLM", tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                 embedding_multiplier=6.0, attention_multiplier=0.4, residual_multiplier=0.5, logits_scaling=3.0,
                 pad_token_id=0)  # yapf: disable
QWEN3 = common("qwen3", "Qwen3ForCausalLM", intermediate_size=64, num_attention_heads=2, head_dim=32,
               attention_bias=False, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True,
               use_sliding_window=False, sliding_window=None, max_window_layers=2)  # yapf: disable
OLMO2 = common("olmo2", "Olmo2ForCausalLM", intermediate_size=64, rope_theta=500000.0, rms_norm_eps=1e-6,
               attention_bias=False, pad_token_id=0)  # yapf: disable
QWEN3_MOE = common("qwen3_moe", "Qwen3MoeForCausalLM", hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                   num_attention_heads=4, num_key_value_heads=2, head_dim=16, rope_theta=1000000.0, rms_norm_eps=1e-6,
                   num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True,
                   decoder_sparse_step=1, mlp_only_layers=[1], attention_bias=False, use_sliding_window=False,
                   sliding_window=None)  # yapf: disable
MIXTRAL = common("mixtral", "MixtralForCausalLM", hidden_size=32, intermediate_size=32, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, num_local_experts=8, num_experts_per_tok=2,
                 sliding_window=None, rope_theta=1000000.0)  # yapf: disable
MOE_FEATURES = {
    "equal router logits: lowest index wins": Feature(patch=higher_index_wins),
    "number of experts": Feature(model=single_expert),
}
QK_NORM = {"QK norm": Feature(model=bypass("q_norm", "k_norm"))}
GEMMA_FEATURES = {
    "norm weight + 1": Feature(model=add_to("norm.weight", -1.0)),
    "post norms": Feature(model=bypass("post_attention_layernorm", "post_feedforward_layernorm")),
    "query_pre_attn_scalar": Feature(config=lambda config: {**config, "query_pre_attn_scalar": config["head_dim"]}),
    "embedding times sqrt(hidden)": Feature(model=lambda model: model.model.embed_tokens.embed_scale.fill_(1.0)),
    "GELU, not SiLU": Feature(config=changed(hidden_activation="silu")),
}


MODELS = {
    "llama": Model(LLAMA, {
        **PAIRS, "own head": Feature(model=head_from_embedding),
        "RoPE": Feature(config=changed(rope_theta=1e30)),
    }),
    "llama_f16": Model({**LLAMA3, "torch_dtype": "float16"}, {}, dtype="float16", gguf=False),
    "llama3": Model(LLAMA3, {
        **PAIRS,
        "RoPE scaling": Feature(config=without("rope_scaling")),
        "RoPE scaling: smooth part": Feature(config=rope_changed(high_freq_factor=1.0001)),
        "RoPE scaling: unscaled part": Feature(
            config=changed(rope_scaling={"rope_type": "linear", "factor": 8.0})),
        "RoPE base": Feature(config=changed(rope_theta=10000.0)),
    }),
    "mistral": Model(
        common("mistral", "MistralForCausalLM", num_attention_heads=2, head_dim=16, sliding_window=WINDOW),
        {**PAIRS, **WINDOW_OFF}, shards=2, gguf_config={"sliding_window": None},
        gguf_note="a GGUF file of architecture llama does not say that there is a window"),
    "qwen2": Model(QWEN2, {
        **PAIRS, **ROPE_BASE, "bias of q": Feature(model=fill("q_proj.bias", 0)),
        "bias of k": Feature(model=fill("k_proj.bias", 0)), "bias of v": Feature(model=fill("v_proj.bias", 0)),
        "window stated but unused": Feature(config=changed(use_sliding_window=True, max_window_layers=0)),
    }),
    "qwen2_window": Model({**QWEN2, "hidden_size": 24, "intermediate_size": 32, "use_sliding_window": True}, {
        **WINDOW_OFF, "window from max_window_layers on": Feature(config=changed(max_window_layers=0)),
    }, gguf=False),
    "qwen2_bf16": Model({**QWEN2, "torch_dtype": "bfloat16"}, {}, dtype="bfloat16", gguf=False),
    "qwen3": Model(QWEN3, {**PAIRS, **ROPE_BASE, **QK_NORM}),
    "gemma2": Model(GEMMA2, {
        **PAIRS, **WINDOW_OFF, **GEMMA_FEATURES,
        "window in even layers only": Feature(config=changed(layer_types=["full_attention", "sliding_attention"])),
        "soft cap of scores": Feature(config=changed(attn_logit_softcapping=None)),
        "soft cap of logits": Feature(config=changed(final_logit_softcapping=None)),
    }, gguf_config={"query_pre_attn_scalar": 16},
        gguf_note="a GGUF file has no query_pre_attn_scalar: the scale is 1/sqrt(head size), but for 46 layers "
                  "(the 27B model) 1/sqrt(width / heads)"),
    "gemma3": Model(GEMMA3, {
        **PAIRS, **GEMMA_FEATURES, **QK_NORM, **WINDOW_OFF,
        "global layers": Feature(config=changed(sliding_window_pattern=7)),
        "RoPE base of local layers": Feature(config=changed(rope_local_base_freq=1000000.0)),
        "RoPE base of global layers": Feature(config=changed(rope_theta=10000.0)),
        "RoPE scaling of global layers": Feature(config=without("rope_scaling")),
    }, gguf_config={"query_pre_attn_scalar": 24},
        gguf_note="a GGUF file has no query_pre_attn_scalar: the scale is 1/sqrt(head size), but for 62 layers "
                  "(the 27B model) 1/sqrt(width / heads)"),
    "gemma3_vision": Model(GEMMA3_VISION, {
        **QK_NORM,
        "window": Feature(config=text_changed(sliding_window=1000)),
        "KV heads": Feature(model=fill("k_proj.weight", 0)),
        "RoPE base of global layers": Feature(config=text_changed(rope_theta=10000.0)),
        "RoPE base of local layers": Feature(config=text_changed(rope_local_base_freq=1000000.0)),
        "RoPE scaling of global layers": Feature(config=text_changed(rope_scaling=None)),
        "query_pre_attn_scalar": Feature(config=text_changed(query_pre_attn_scalar=16)),
    }, gguf=False),
    "phi3": Model(PHI3, {
        **WINDOW_OFF, "gate before up": Feature(model=swap_halves("gate_up_proj")),
        "key before value": Feature(model=swap_key_value),
    }),
    "phi3_longrope": Model(LONGROPE, {
        "long factors": Feature(config=rope_changed(long_factor=[1.0] * 6)),
        "short factors": Feature(config=rope_changed(short_factor=[1.0] * 6)),
        "long factors from 33 positions on": Feature(config=moved_border(33)),
        "short factors up to 32 positions": Feature(config=moved_border(31)),
        "attention factor": Feature(config=rope_changed(attention_factor=1.0)),
    }, lengths=(72, 32, 33)),
    "smollm3": Model(SMOLLM3, {
        **PAIRS, **ROPE_BASE, "layer without RoPE": Feature(config=changed(no_rope_layers=[1, 1, 1, 1])),
        "which layer is without RoPE": Feature(config=changed(no_rope_layers=[0, 1, 1, 1])),
    }),
    "granite": Model(GRANITE, {
        **PAIRS, "embedding multiplier": Feature(config=changed(embedding_multiplier=1.0)),
        "attention multiplier": Feature(config=changed(attention_multiplier=0.25)),
        "residual multiplier": Feature(config=changed(residual_multiplier=1.0)),
        "logits scaling": Feature(config=changed(logits_scaling=1.0)),
        "attention biases": Feature(model=fill("self_attn.q_proj.bias", 0)),
        "bias of o": Feature(model=fill("o_proj.bias", 0)), "bias of down": Feature(model=fill("down_proj.bias", 0)),
        "bias of gate": Feature(model=fill("gate_proj.bias", 0)),
        "bias of up": Feature(model=fill("up_proj.bias", 0)),
    }),
    "olmo2": Model(OLMO2, {
        **PAIRS, **ROPE_BASE, **QK_NORM, "QK norm over the whole width": Feature(model=per_head_norm),
        "post norms": Feature(model=bypass("post_attention_layernorm", "post_feedforward_layernorm")),
    }),
    "qwen3_moe": Model(QWEN3_MOE, {
        **PAIRS, **QK_NORM, **MOE_FEATURES, "norm_topk_prob": Feature(config=changed(norm_topk_prob=False)),
    }, gains={"mlp.gate.": 1.0}, finish=tie_experts([[(2, 5), (1, 3)], [(0, 4)]], never=6), gguf=False),
    "qwen3_moe_sparse": Model({**QWEN3_MOE, "num_hidden_layers": 2, "mlp_only_layers": []}, {**MOE_FEATURES},
                              gains={"mlp.gate.": 1.0}, finish=tie_experts([[(0, 1)], [(2, 7), (3, 5)]], never=4)),
    "mixtral": Model(MIXTRAL, {**PAIRS, **MOE_FEATURES},
                     gains={"mlp.gate.": 1.0}, finish=tie_experts([[(2, 5)], [(0, 7), (1, 4)]], never=3)),
}  # yapf: disable
