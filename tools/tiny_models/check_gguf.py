# SPDX-License-Identifier: Apache-2.0
"""Runs every tests/data/arch/*/model.gguf in NumPy and compares with the logits of transformers.

check_gguf.py [NAME ...]

It reads a GGUF file as README.md describes it and shares no code with transformers or with the product, so that it
shows that the description suffices. Arithmetic is FP64; fails above 1e-3.
"""
import json
import pathlib
import sys

import gguf
import numpy as np

ARCH = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "arch"
TOLERANCE = 1e-3
ADJACENT_PAIRS = ("llama", "smollm3", "granite")  # the others turn (i, i + d/2)


class File:

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.values = {name: field.contents() for name, field in reader.fields.items()}
        self.tensors = {
            tensor.name: np.asarray(tensor.data, np.float64).reshape(tensor.shape[::-1]) for tensor in reader.tensors
        }
        self.architecture = self.values["general.architecture"]

    def key(self, name, default=None):
        value = self.values.get(f"{self.architecture}.{name}", default)
        if value is None:
            raise SystemExit(f"key {name} is missing")
        return value

    def tensor(self, name):
        return self.tensors.get(name)


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def soft_cap(x, cap):
    return cap * np.tanh(x / cap) if cap else x


class Decoder:

    def __init__(self, file):
        self.file = file
        architecture = file.architecture
        self.layers = file.key("block_count")
        self.width = file.key("embedding_length")
        self.heads = file.key("attention.head_count")
        self.kv_heads = file.key("attention.head_count_kv", self.heads)
        self.head = file.key("attention.key_length", self.width // self.heads)
        self.epsilon = file.key("attention.layer_norm_rms_epsilon")
        self.rotated = file.key("rope.dimension_count", self.head)
        self.base = file.key("rope.freq_base", 10000.0)
        self.window = file.key("attention.sliding_window", 0)
        self.period = {"gemma2": 2, "gemma3": 6}.get(architecture, 1)  # the last layer of each is global
        self.gemma = architecture.startswith("gemma")
        self.activation = gelu_tanh if self.gemma else silu
        self.scale = file.key("attention.scale", self.head**-0.5)

    def weight(self, layer, name):
        return self.file.tensor(f"blk.{layer}.{name}.weight")

    def linear(self, x, layer, name):
        bias = self.file.tensor(f"blk.{layer}.{name}.bias")
        y = x @ self.weight(layer, name).T
        return y if bias is None else y + bias

    def is_local(self, layer):
        return self.window > 0 and (self.period == 1 or (layer + 1) % self.period != 0)

    def frequencies(self, layer, length):
        """(angle per position and pair, factor of cos and sin)"""
        file = self.file
        base, linear, factor = self.base, file.key("rope.scaling.factor", 1.0), 1.0
        if file.architecture == "gemma3" and self.is_local(layer):
            base, linear = file.key("rope.freq_base_swa", 10000.0), 1.0
        frequency = base**(-np.arange(0, self.rotated, 2) / self.rotated)
        divisors = file.tensor("rope_freqs.weight")
        if file.tensor("rope_factors_short.weight") is not None:
            border = file.key("rope.scaling.original_context_length")
            divisors = file.tensor(f"rope_factors_{'long' if length > border else 'short'}.weight")
            factor = file.key("rope.scaling.attn_factor", 1.0)
        if divisors is not None:
            frequency = frequency / divisors
        return np.arange(length)[:, None] * frequency / linear, factor

    def rotate(self, x, layer):
        """x: [length, heads, head]"""
        angle, factor = self.frequencies(layer, len(x))
        cos, sin = (np.cos(angle) * factor)[:, None], (np.sin(angle) * factor)[:, None]
        out = x.copy()
        half = self.rotated // 2
        if self.file.architecture in ADJACENT_PAIRS:
            first, second = slice(0, self.rotated, 2), slice(1, self.rotated, 2)
        else:
            first, second = slice(0, half), slice(half, self.rotated)
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    def query_key_value(self, x, layer):
        sizes = np.cumsum([self.heads * self.head, self.kv_heads * self.head])
        if self.weight(layer, "attn_qkv") is not None:
            return np.split(self.linear(x, layer, "attn_qkv"), sizes, axis=1)
        return [self.linear(x, layer, name) for name in ("attn_q", "attn_k", "attn_v")]

    def norm_head(self, x, layer, name):
        """QK norm of each head, for OLMo 2 of the whole width. x: [length, heads * head]"""
        weight = self.weight(layer, name)
        whole = self.file.architecture == "olmo2"
        if weight is not None and whole:
            x = rms_norm(x, weight, self.epsilon)
        x = x.reshape(len(x), -1, self.head)
        return x if weight is None or whole else rms_norm(x, weight, self.epsilon)

    def attention(self, x, layer):
        query, key, value = self.query_key_value(x, layer)
        query, key = self.norm_head(query, layer, "attn_q_norm"), self.norm_head(key, layer, "attn_k_norm")
        value = value.reshape(len(x), -1, self.head)
        if not (self.file.architecture == "smollm3" and (layer + 1) % 4 == 0):
            query, key = self.rotate(query, layer), self.rotate(key, layer)
        group = self.heads // self.kv_heads
        key, value = key.repeat(group, axis=1), value.repeat(group, axis=1)
        scores = np.einsum("qhd,khd->hqk", query, key) * self.scale
        scores = soft_cap(scores, self.file.key("attn_logit_softcapping", 0))
        at = np.arange(len(x))
        seen = at[None, :] <= at[:, None]
        if self.is_local(layer):
            seen &= at[:, None] - at[None, :] < self.window
        scores = np.where(seen, scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", scores, value).reshape(len(x), -1)
        return self.linear(mixed, layer, "attn_output")

    def experts(self, x, layer):
        router = x @ self.weight(layer, "ffn_gate_inp").T
        probabilities = np.exp(router - router.max(-1, keepdims=True))
        probabilities /= probabilities.sum(-1, keepdims=True)
        used = self.file.key("expert_used_count")
        # Stable: of equal probabilities the lowest index. Rounding hides that the FP64 sums of equal rows may differ.
        chosen = np.argsort(-router.round(9), axis=-1, kind="stable")[:, :used]
        gate, up, down = (self.weight(layer, f"ffn_{part}_exps") for part in ("gate", "up", "down"))
        out = np.zeros_like(x)
        for token, row in enumerate(chosen):
            share = probabilities[token, row] / probabilities[token, row].sum()
            for weight, e in zip(share, row):
                out[token] += weight * (down[e] @ (self.activation(gate[e] @ x[token]) * (up[e] @ x[token])))
        return out

    def feed_forward(self, x, layer):
        if self.weight(layer, "ffn_gate_inp") is not None:
            return self.experts(x, layer)
        if self.weight(layer, "ffn_gate") is None:  # Phi-3: gate above up in one matrix
            gate, up = np.split(self.linear(x, layer, "ffn_up"), 2, axis=1)
        else:
            gate, up = self.linear(x, layer, "ffn_gate"), self.linear(x, layer, "ffn_up")
        return self.linear(self.activation(gate) * up, layer, "ffn_down")

    def norm(self, x, layer, name):
        weight = self.weight(layer, name)
        return x if weight is None else rms_norm(x, weight, self.epsilon)

    def logits(self, ids):
        file = self.file
        x = file.tensor("token_embd.weight")[ids] * file.key("embedding_scale", 1.0)
        if self.gemma:
            x = x * self.width**0.5
        residual = file.key("residual_scale", 1.0)
        for layer in range(self.layers):
            step = self.attention(self.norm(x, layer, "attn_norm"), layer)
            x = x + residual * self.norm(step, layer, "post_attention_norm")
            step = self.feed_forward(self.norm(x, layer, "ffn_norm"), layer)
            x = x + residual * self.norm(step, layer, "post_ffw_norm")
        x = rms_norm(x, file.tensor("output_norm.weight"), self.epsilon)
        head = file.tensor("output.weight")
        y = x @ (file.tensor("token_embd.weight") if head is None else head).T
        return soft_cap(y / file.key("logit_scale", 1.0), file.key("final_logit_softcapping", 0))


def main():
    status = 0
    for folder in sorted(ARCH.iterdir()):
        if not (folder / "model.gguf").exists() or (sys.argv[1:] and folder.name not in sys.argv[1:]):
            continue
        decoder = Decoder(File(folder / "model.gguf"))
        expected = json.loads((folder / "expected.json").read_text())
        for entry in expected["gguf"]:
            reference = np.fromfile(folder / entry["logits"], "<f4").reshape(len(entry["ids"]), -1)
            worst = np.abs(decoder.logits(np.array(entry["ids"])) - reference).max()
            print(f"{folder.name}, {len(entry['ids'])} tokens: {worst:.2g}{'' if worst < TOLERANCE else '  DIFFERS'}")
            status |= not worst < TOLERANCE
    return status


if __name__ == "__main__":
    sys.exit(main())
