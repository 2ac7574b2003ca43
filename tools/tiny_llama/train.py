# SPDX-License-Identifier: Apache-2.0
"""Learns the vocabulary and the weights of the tiny model and writes them as one F16 GGUF file.

train.py [--out FILE] [--steps N]   trains (about ten minutes on one core)
train.py --check                    compares the gradient with finite differences, in FP64
"""
import argparse
import os
import pathlib
import sys
import time

import numpy as np

import bpe
import corpus
import gguf_file
import llama

SEED = 20240611
CORPUS_BYTES = 3_000_000
VOCABULARY_BYTES = 400_000  # of the corpus; more changes no merge that matters
DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "tiny"

CHAT_TEMPLATE = ("{% for message in messages %}"
                 "<|im_start|>{{ message.role }}\n{{ message.content | trim }}<|im_end|>\n"
                 "{% endfor %}"
                 "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def batches(ids, steps, rng):
    """Windows of the text: short ones first, for speed, then the whole context, to learn every position."""
    for step in range(steps):
        length, count = (128, 16) if step < 0.6 * steps else (512, 4)
        starts = rng.integers(0, len(ids) - length - 1, count)
        window = ids[starts[:, None] + np.arange(length + 1)]
        yield window[:, :-1], window[:, 1:]


class Adam:
    """Adam with decoupled weight decay on the matrices."""

    def __init__(self, weights):
        self.first = {name: np.zeros_like(w) for name, w in weights.items()}
        self.second = {name: np.zeros_like(w) for name, w in weights.items()}
        self.step = 0

    def update(self, weights, grads, rate, beta1=0.9, beta2=0.98, epsilon=1e-8, decay=0.02, longest=1.0):
        self.step += 1
        norm = float(np.sqrt(sum(np.vdot(g, g) for g in grads.values())))
        shrink = np.float32(min(1.0, longest / (norm + 1e-12)))
        step_size = rate * (1 - beta2**self.step)**0.5 / (1 - beta1**self.step)
        for name, weight in weights.items():
            grad = grads[name] * shrink
            first, second = self.first[name], self.second[name]
            first *= beta1
            first += (1 - beta1) * grad
            second *= beta2
            second += (1 - beta2) * grad * grad
            if weight.ndim == 2:
                weight *= 1 - rate * decay
            weight -= step_size * first / (np.sqrt(second) + epsilon)
        return norm


def learning_rate(step, steps, peak=4e-3, last=5e-5, warm_up=60):
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return last + (peak - last) * 0.5 * (1 + np.cos(np.pi * (step - warm_up) / (steps - warm_up)))


def train(config, ids, steps):
    weights = llama.initial_weights(config, SEED)
    adam = Adam(weights)
    begin = time.monotonic()
    recent = None
    for step, (inputs, targets) in enumerate(batches(ids, steps, np.random.default_rng(SEED + 1))):
        loss, grads = llama.loss_and_gradient(config, weights, inputs, targets)
        adam.update(weights, grads, learning_rate(step, steps))
        recent = loss if recent is None else 0.95 * recent + 0.05 * loss
        if step % 50 == 0 or step + 1 == steps:
            print(f"step {step:5d}  loss {recent:.4f}  {time.monotonic() - begin:6.1f} s", flush=True)
    return weights


def metadata(config, tokens, merges):
    g = gguf_file
    special = len(bpe.SPECIALS)
    return {
        "general.architecture": (g.STRING, "llama"),
        "general.type": (g.STRING, "model"),
        "general.name": (g.STRING, "Troupe tiny Llama"),
        "general.license": (g.STRING, "apache-2.0"),
        "general.file_type": (g.UINT32, g.TYPES["F16"].file_code),
        "general.quantization_version": (g.UINT32, 2),
        "llama.block_count": (g.UINT32, config.block_count),
        "llama.context_length": (g.UINT32, config.context_length),
        "llama.embedding_length": (g.UINT32, config.embedding_length),
        "llama.feed_forward_length": (g.UINT32, config.feed_forward_length),
        "llama.attention.head_count": (g.UINT32, config.head_count),
        "llama.attention.head_count_kv": (g.UINT32, config.head_count_kv),
        "llama.attention.layer_norm_rms_epsilon": (g.FLOAT32, config.norm_epsilon),
        "llama.rope.freq_base": (g.FLOAT32, config.rope_base),
        "llama.rope.dimension_count": (g.UINT32, config.head_length),
        "llama.vocab_size": (g.UINT32, config.vocabulary_size),
        "tokenizer.ggml.model": (g.STRING, "gpt2"),
        "tokenizer.ggml.pre": (g.STRING, "smollm"),
        "tokenizer.ggml.tokens": (g.ARRAY, (g.STRING, tokens)),
        "tokenizer.ggml.token_type": (g.ARRAY, (g.INT32, [3] * special + [1] * (len(tokens) - special))),
        "tokenizer.ggml.merges": (g.ARRAY, (g.STRING, [" ".join(pair) for pair in merges])),
        "tokenizer.ggml.bos_token_id": (g.UINT32, tokens.index(corpus.IM_START)),
        "tokenizer.ggml.eos_token_id": (g.UINT32, tokens.index(corpus.IM_END)),
        "tokenizer.ggml.unknown_token_id": (g.UINT32, tokens.index(corpus.END_OF_TEXT)),
        "tokenizer.ggml.padding_token_id": (g.UINT32, tokens.index(corpus.IM_END)),
        "tokenizer.ggml.add_bos_token": (g.BOOL, False),
        "tokenizer.ggml.add_space_prefix": (g.BOOL, False),
        "tokenizer.chat_template": (g.STRING, CHAT_TEMPLATE),
    }


def check_gradient():
    """Worst relative error of directional and single-weight derivatives against central differences."""
    config = llama.Config(vocabulary_size=23, embedding_length=16, block_count=2, feed_forward_length=24)
    weights = llama.initial_weights(config, 1, np.float64)
    rng = np.random.default_rng(2)
    for weight in weights.values():
        weight += 0.1 * rng.standard_normal(weight.shape)
    ids = rng.integers(0, config.vocabulary_size, (3, 10))
    _, grads = llama.loss_and_gradient(config, weights, ids[:, :-1], ids[:, 1:])
    worst = 0.0
    for name, weight in weights.items():
        for _ in range(6):
            where = tuple(int(rng.integers(n)) for n in weight.shape)
            kept, step = weight[where], 1e-5
            sides = []
            for sign in (1, -1):
                weight[where] = kept + sign * step
                sides.append(llama.loss_and_gradient(config, weights, ids[:, :-1], ids[:, 1:])[0])
            weight[where] = kept
            measured = (sides[0] - sides[1]) / (2 * step)
            worst = max(worst, abs(measured - grads[name][where]) / max(1e-4, abs(measured)))
    print(f"gradient: {len(weights)} weights, worst relative error {worst:.1e}")
    return worst < 1e-5


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=DATA / "tiny_f16.gguf")
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        return 0 if check_gradient() else 1

    texts = list(corpus.documents(SEED, CORPUS_BYTES))
    sample, size = [], 0
    for text in texts:
        sample.append(text)
        size += len(text.encode())
        if size >= VOCABULARY_BYTES:
            break
    config = llama.Config()
    tokens, merges = bpe.learn(sample, config.vocabulary_size)
    encoder = bpe.Encoder(tokens, merges)
    end = encoder.ids[corpus.END_OF_TEXT]
    ids = np.array([token for text in texts for token in [end] + encoder.encode(text)], np.int32)
    print(f"{len(texts)} documents, {len(ids)} tokens")

    weights = train(config, ids, arguments.steps)
    tensors = {name: ("F32" if weight.ndim == 1 else "F16", weight) for name, weight in weights.items()}
    partial = arguments.out.with_suffix(".partial")
    gguf_file.write(partial, metadata(config, tokens, merges), tensors)
    os.replace(partial, arguments.out)
    print(f"wrote {arguments.out}, {arguments.out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
