#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a Gemma 3 GGUF file as a Hugging Face folder, all weights as F32: the same numbers under other names.
Needs the packages gguf, numpy and safetensors.  python3 gguf_to_folder.py MODEL.gguf FOLDER

The folder has config.json and model.safetensors, no tokenizer: `troupe eval logits --model FOLDER` compares it."""
import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_output": "self_attn.o_proj",
    "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "post_ffw_norm": "post_feedforward_layernorm",
}


def hf_name(name: str) -> str:
    if name in WHOLE:
        return WHOLE[name]
    _, number, stem, kind = name.split(".")
    return f"model.layers.{number}.{LAYER[stem]}.{kind}"


def weights(reader: gguf.GGUFReader) -> dict[str, np.ndarray]:
    out = {}
    for tensor in reader.tensors:
        numbers = np.ascontiguousarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if "norm" in tensor.name:
            less = numbers - np.float32(1)  # exact unless the weight is tiny; GGUF has the 1 added
            assert np.array_equal(less + np.float32(1), numbers), tensor.name
            numbers = less
        out[hf_name(tensor.name)] = numbers
    return out


def config(reader: gguf.GGUFReader) -> dict:
    def key(name, default=None):
        field = reader.fields.get("gemma3." + name)
        return default if field is None else field.contents()

    head = key("attention.key_length")
    return {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "torch_dtype": "float32",
        "vocab_size": next(int(t.shape[1]) for t in reader.tensors if t.name == "token_embd.weight"),
        "hidden_size": key("embedding_length"), "intermediate_size": key("feed_forward_length"),
        "num_hidden_layers": key("block_count"), "num_attention_heads": key("attention.head_count"),
        "num_key_value_heads": key("attention.head_count_kv"), "head_dim": head, "query_pre_attn_scalar": head,
        "max_position_embeddings": key("context_length"), "rms_norm_eps": key("attention.layer_norm_rms_epsilon"),
        "rope_theta": key("rope.freq_base"), "rope_local_base_freq": key("rope.freq_base_swa", 10000.0),
        "sliding_window": key("attention.sliding_window"), "sliding_window_pattern": 6,
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
    }


def main() -> None:
    reader = gguf.GGUFReader(sys.argv[1])
    assert reader.fields["general.architecture"].contents() == "gemma3", "only Gemma 3 files can be written"
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(reader), indent=2) + "\n")
    save_file(weights(reader), folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
