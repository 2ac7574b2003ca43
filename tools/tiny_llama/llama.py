# SPDX-License-Identifier: Apache-2.0
"""A Llama in NumPy with its gradient written out: RMSNorm, RoPE, grouped-query attention, SwiGLU, tied head.

Weights are [out, in] and carry the names of the GGUF file. RoPE turns the adjacent pairs (2i, 2i+1) of each head, which
is the order in which GGUF files of architecture "llama" store the rows of attn_q and attn_k.
"""
import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Config:
    vocabulary_size: int = 512
    context_length: int = 512
    embedding_length: int = 128
    block_count: int = 4
    head_count: int = 4
    head_count_kv: int = 2
    feed_forward_length: int = 352  # eleven quantisation blocks of 32: a remainder for every wider kernel tile
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5

    @property
    def head_length(self):
        return self.embedding_length // self.head_count


def shapes(config):
    """name -> shape of every weight, in file order"""
    width, kv_width = config.embedding_length, config.head_count_kv * config.head_length
    table = {"token_embd.weight": (config.vocabulary_size, width)}
    for block in range(config.block_count):
        prefix = f"blk.{block}."
        table[prefix + "attn_norm.weight"] = (width, )
        table[prefix + "attn_q.weight"] = (width, width)
        table[prefix + "attn_k.weight"] = (kv_width, width)
        table[prefix + "attn_v.weight"] = (kv_width, width)
        table[prefix + "attn_output.weight"] = (width, width)
        table[prefix + "ffn_norm.weight"] = (width, )
        table[prefix + "ffn_gate.weight"] = (config.feed_forward_length, width)
        table[prefix + "ffn_up.weight"] = (config.feed_forward_length, width)
        table[prefix + "ffn_down.weight"] = (width, config.feed_forward_length)
    table["output_norm.weight"] = (width, )
    return table


def initial_weights(config, seed, dtype=np.float32):
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in shapes(config).items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, dtype)
            continue
        deviation = 0.05 if name.startswith("token_embd") else shape[1]**-0.5
        if name.endswith(("attn_output.weight", "ffn_down.weight")):
            deviation /= (2 *
                          config.block_count)**0.5  # keeps the residual stream's size independent of depth
        weights[name] = (rng.standard_normal(shape) * deviation).astype(dtype)
    return weights


def rope_tables(config, length, dtype):
    """cos and sin of each position and pair: [length, head_length / 2]"""
    frequency = config.rope_base**(-np.arange(0, config.head_length, 2) / config.head_length)
    angle = np.arange(length)[:, None] * frequency
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


def rotate(x, cos, sin):
    """x: [..., length, head_length]; the pair (x0, x1) turns by the angle of its position"""
    out = np.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return out


def norm_forward(x, gain, epsilon):
    scale = 1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon)
    unit = x * scale
    return unit * gain, (unit, scale)


def norm_backward(grad, gain, saved):
    unit, scale = saved
    through = grad * gain
    grad_x = scale * (through - unit * np.mean(through * unit, axis=-1, keepdims=True))
    return grad_x, (grad * unit).sum(axis=0)


class Attention:
    """Causal attention of one block for a batch of sequences, [batch * length, width] in and out."""

    def __init__(self, config, batch, length, dtype):
        self.config = config
        self.batch, self.length = batch, length
        self.cos, self.sin = rope_tables(config, length, dtype)
        self.mask = np.triu(np.full((length, length), -np.inf, dtype), 1)
        self.scale = dtype(config.head_length**-0.5)

    def split(self, x, heads):
        """[batch * length, heads * head_length] -> [batch, kv heads, query heads of each, length, head_length]"""
        kv_heads = self.config.head_count_kv
        x = x.reshape(self.batch, self.length, kv_heads, heads // kv_heads, self.config.head_length)
        return x.transpose(0, 2, 3, 1, 4)

    def join(self, x):
        return x.transpose(0, 3, 1, 2, 4).reshape(self.batch * self.length, -1)

    def forward(self, q, k, v):
        q = rotate(self.split(q, self.config.head_count), self.cos, self.sin)
        k = rotate(self.split(k, self.config.head_count_kv), self.cos, self.sin)
        v = self.split(v, self.config.head_count_kv)
        score = (q @ k.swapaxes(-1, -2)) * self.scale + self.mask
        score -= score.max(axis=-1, keepdims=True)
        share = np.exp(score, out=score)
        share /= share.sum(axis=-1, keepdims=True)
        return self.join(share @ v), (q, k, v, share)

    def backward(self, grad, saved):
        q, k, v, share = saved
        grad = self.split(grad, self.config.head_count)
        grad_v = (share.swapaxes(-1, -2) @ grad).sum(axis=2, keepdims=True)
        grad_share = grad @ v.swapaxes(-1, -2)
        grad_score = share * (grad_share - (grad_share * share).sum(axis=-1, keepdims=True))
        grad_q = (grad_score @ k) * self.scale
        grad_k = (grad_score.swapaxes(-1, -2) @ q).sum(axis=2, keepdims=True) * self.scale
        # The inverse of a rotation turns by the opposite angle.
        grad_q = rotate(grad_q, self.cos, -self.sin)
        grad_k = rotate(grad_k, self.cos, -self.sin)
        return self.join(grad_q), self.join(grad_k), self.join(grad_v)


def loss_and_gradient(config, weights, ids, targets):
    """Mean negative log likelihood of targets [batch, length] given ids [batch, length], and its gradient by name."""
    batch, length = ids.shape
    dtype = weights["token_embd.weight"].dtype.type
    attention = Attention(config, batch, length, dtype)
    epsilon = dtype(config.norm_epsilon)
    w = weights
    x = w["token_embd.weight"][ids.reshape(-1)]
    saved = []
    for block in range(config.block_count):
        p = f"blk.{block}."
        normed, norm_saved = norm_forward(x, w[p + "attn_norm.weight"], epsilon)
        mixed, mix_saved = attention.forward(normed @ w[p + "attn_q.weight"].T,
                                             normed @ w[p + "attn_k.weight"].T,
                                             normed @ w[p + "attn_v.weight"].T)
        x = x + mixed @ w[p + "attn_output.weight"].T
        ffn_normed, ffn_norm_saved = norm_forward(x, w[p + "ffn_norm.weight"], epsilon)
        gate = ffn_normed @ w[p + "ffn_gate.weight"].T
        up = ffn_normed @ w[p + "ffn_up.weight"].T
        sigmoid = 1.0 / (1.0 + np.exp(-gate))
        hidden = gate * sigmoid * up
        x = x + hidden @ w[p + "ffn_down.weight"].T
        saved.append(
            (normed, norm_saved, mixed, mix_saved, ffn_normed, ffn_norm_saved, gate, up, sigmoid, hidden))
    final, final_saved = norm_forward(x, w["output_norm.weight"], epsilon)
    logits = final @ w["token_embd.weight"].T

    flat = targets.reshape(-1)
    rows = np.arange(flat.size)
    logits -= logits.max(axis=-1, keepdims=True)
    chosen = logits[rows, flat].copy()
    share = np.exp(logits, out=logits)
    total = share.sum(axis=-1, keepdims=True)
    loss = float(np.mean(np.log(total[:, 0]) - chosen))
    share /= total
    share[rows, flat] -= 1.0
    share /= dtype(flat.size)

    grads = {"token_embd.weight": share.T @ final}
    grad, grads["output_norm.weight"] = norm_backward(share @ w["token_embd.weight"], w["output_norm.weight"],
                                                      final_saved)
    for block in reversed(range(config.block_count)):
        p = f"blk.{block}."
        normed, norm_saved, mixed, mix_saved, ffn_normed, ffn_norm_saved, gate, up, sigmoid, hidden = saved.pop(
        )
        grads[p + "ffn_down.weight"] = grad.T @ hidden
        grad_hidden = grad @ w[p + "ffn_down.weight"]
        grad_up = grad_hidden * gate * sigmoid
        grad_gate = grad_hidden * up * sigmoid * (1.0 + gate * (1.0 - sigmoid))
        grads[p + "ffn_gate.weight"] = grad_gate.T @ ffn_normed
        grads[p + "ffn_up.weight"] = grad_up.T @ ffn_normed
        grad_normed = grad_gate @ w[p + "ffn_gate.weight"] + grad_up @ w[p + "ffn_up.weight"]
        through, grads[p + "ffn_norm.weight"] = norm_backward(grad_normed, w[p + "ffn_norm.weight"],
                                                              ffn_norm_saved)
        grad = grad + through

        grads[p + "attn_output.weight"] = grad.T @ mixed
        grad_q, grad_k, grad_v = attention.backward(grad @ w[p + "attn_output.weight"], mix_saved)
        grads[p + "attn_q.weight"] = grad_q.T @ normed
        grads[p + "attn_k.weight"] = grad_k.T @ normed
        grads[p + "attn_v.weight"] = grad_v.T @ normed
        grad_normed = (grad_q @ w[p + "attn_q.weight"] + grad_k @ w[p + "attn_k.weight"] +
                       grad_v @ w[p + "attn_v.weight"])
        through, grads[p + "attn_norm.weight"] = norm_backward(grad_normed, w[p + "attn_norm.weight"],
                                                               norm_saved)
        grad = grad + through
    np.add.at(grads["token_embd.weight"], ids.reshape(-1), grad)
    return loss, grads
