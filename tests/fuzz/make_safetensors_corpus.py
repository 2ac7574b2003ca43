# SPDX-License-Identifier: Apache-2.0
"""Writes the seed files of fuzz_safetensors and fuzz_config into corpus/.  python3 make_safetensors_corpus.py"""
import json
import struct
from pathlib import Path

HERE = Path(__file__).parent
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
         "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8}


def file(tensors, pad=0, header=None, length=None) -> bytes:
    """`tensors`: name -> (dtype, shape, bytes)."""
    entries, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, content) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = (json.dumps(entries) if header is None else header).encode() + b" " * pad
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def of(dtype, *shape):
    count = 1
    for extent in shape:
        count *= extent
    return dtype, list(shape), bytes(i * 37 % 256 for i in range(count * SIZES[dtype]))


def floats(*shape):
    count = 1
    for extent in shape:
        count *= extent
    return "F32", list(shape), struct.pack(f"<{count}f", *(0.5 + i for i in range(count)))


SEEDS = {
    "dense": file({"a.weight": floats(3, 2), "b.weight": of("F16", 2, 2), "c.bias": of("BF16", 4)}),
    "all_types": file({dtype.lower(): of(dtype, 2) for dtype in SIZES}),
    "scalar_and_empty": file({"s": floats(), "e": of("I64", 0, 3)}),
    "rank4": file({"r": floats(2, 1, 3, 1)}),
    "fp8_tensor": file({"m.weight": of("F8_E4M3", 4, 3), "m.weight_scale": floats(1)}),
    "fp8_rows": file({"m.weight": of("F8_E5M2", 4, 3), "m.weight_scale": floats(4, 1), "m.input_scale": floats(1)}),
    "int8_rows": file({"m.weight": of("I8", 3, 2), "m.weight_scale": of("BF16", 3)}),
    "bad_scale": file({"m.weight": of("F8_E4M3", 4, 3), "m.weight_scale": floats(7)}),
    "no_scale": file({"m.weight": of("F8_E4M3", 4, 3)}),
    "padded": file({"a": floats(1)}, pad=8),
    "header_too_long": file({}, length=1 << 40),
    "no_json": file({}, header="{"),
    "list": file({}, header="[]"),
    "twice": file({}, header='{"a":{},"a":{}}'),
    "overlap": file({}, header='{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}') + b"123",
    "gap": file({}, header='{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}') + b"12",
    "wrong_size": file({}, header='{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,2]}}') + b"12",
    "huge_shape": file({}, header='{"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,2]}}') + b"12",
    "unknown_type": file({}, header='{"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,2]}}') + b"12",
    "empty": b"",
}


def layer(prefix, stems):
    """The tensors of one layer of the target's models: 4 wide, 2 heads of 2, feed-forward of 3."""
    shapes = {"q_proj": (4, 4), "k_proj": (2, 4), "v_proj": (2, 4), "o_proj": (4, 4), "gate_proj": (3, 4), "up_proj": (3, 4),
              "down_proj": (4, 3), "q_norm": (2, ), "k_norm": (2, )}
    return {f"{prefix}layers.0.{stem}.weight": floats(*shapes.get(stem.split(".")[-1], (4, ))) for stem in stems}


PLAIN = ["input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
         "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
GEMMA = PLAIN + ["self_attn.q_norm", "self_attn.k_norm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]


def of_parity(wanted, tensors):
    """The target chooses its model by the length of the file."""
    whole = file(tensors)
    return whole if len(whole) % 2 == wanted else file(tensors, pad=1)


LLAMA = {"model.embed_tokens.weight": floats(6, 4), "model.norm.weight": floats(4), **layer("model.", PLAIN)}
for name, prefix in (("gemma_published", "language_model.model."), ("gemma_5", "model.language_model.")):
    SEEDS[name] = of_parity(1, {f"{prefix}embed_tokens.weight": floats(6, 4), f"{prefix}norm.weight": floats(4),
                                "vision_tower.x": floats(2), **layer(prefix, GEMMA)})
SEEDS["llama"] = of_parity(0, {**LLAMA, "lm_head.weight": floats(6, 4)})
SEEDS["llama_no_head"] = of_parity(0, LLAMA)
SEEDS["llama_extra"] = of_parity(0, {**LLAMA, "lm_head.weight": floats(6, 4), "surprise": floats(1)})
SEEDS["llama_fp8"] = of_parity(0, {**LLAMA, "lm_head.weight": floats(6, 4),
                                   "model.layers.0.self_attn.q_proj.weight": of("F8_E5M2", 4, 4),
                                   "model.layers.0.self_attn.q_proj.weight_scale": floats(1)})
# A scale per block, in a file of every length modulo the formats that the target draws.
for extra in range(12):
    for rows, columns in ((1, 1), (2, 2), (3, 2), (5, 7)):
        if extra % 3 == 0:
            SEEDS[f"fp8_blocks_{rows}_{columns}_{extra}"] = file(
                {"m.weight": of("F8_E4M3", 5, 7), "m.weight_scale_inv": floats(-(-5 // rows), -(-7 // columns))}, pad=extra)

for name, content in SEEDS.items():
    folder = HERE / "corpus" / "safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)

CONFIGS = HERE / "corpus" / "config"
CONFIGS.mkdir(parents=True, exist_ok=True)
for model in sorted((HERE.parent / "data" / "arch").iterdir()):
    for source in ("config.json", "config_v5.json"):
        (CONFIGS / f"{model.name}_{source[:-5]}").write_bytes((model / source).read_bytes())


def bent(model, name, **changes):
    config = json.loads((HERE.parent / "data" / "arch" / model / "config.json").read_text())
    config.update(changes)
    (CONFIGS / name).write_text(json.dumps(config))


bent("qwen2", "yarn", rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32})
bent("qwen2", "windowed", use_sliding_window=True)
bent("llama", "linear", rope_scaling={"type": "linear", "factor": 4.0})
bent("llama", "dynamic", rope_scaling={"type": "dynamic", "factor": 4.0})
bent("llama", "fp8", quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"})
bent("llama", "gptq", quantization_config={"quant_method": "gptq", "bits": 4})
bent("llama", "int8", quantization_config={"quant_method": "compressed-tensors", "format": "int-quantized"})
bent("llama", "unknown_key", logit_bias_scale=3)
bent("llama", "unknown_class", architectures=["OtherForCausalLM"])
bent("gemma3", "layer_types", layer_types=["sliding_attention"] * 6)
bent("smollm3", "all_rotated", no_rope_layers=None)
