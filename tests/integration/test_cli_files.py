# SPDX-License-Identifier: Apache-2.0
"""Model files that are none, or damaged, or of a kind that cannot be run: one line that names the file and the way out."""
import collections
import os
import pathlib
import random
import re
import struct
import tempfile
import unittest

from program import ProgramTest, ROOT, TINY, troupe


Tensor = collections.namedtuple("Tensor", "shape_at offset_at")
SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
UINT32, STRING, ARRAY = 4, 8, 9
F32 = 0  # the type of a tensor


def layout(gguf):
    """({name: where its entry holds shape and offset}, where the tensor data begin) of a sound file."""
    def number(kind):
        nonlocal at
        value, = struct.unpack_from(kind, gguf, at)
        at += struct.calcsize(kind)
        return value

    def skip(kind):
        nonlocal at
        if kind == STRING:
            length = number("<Q")
            at += length
        elif kind == ARRAY:
            element, count = number("<I"), number("<Q")
            for _ in range(count):
                skip(element)
        else:
            at += SCALAR_BYTES[kind]

    at = 8
    tensor_count, key_count = number("<Q"), number("<Q")
    for _ in range(key_count):
        skip(STRING)
        skip(number("<I"))
    tensors = {}
    for _ in range(tensor_count):
        length = number("<Q")
        name = gguf[at:at + length].decode()
        at += length
        rank = number("<I")
        tensors[name] = Tensor(at, at + 8 * rank + 4)
        at += 8 * rank + 4 + 8
    return tensors, -(-at // 32) * 32


class Files(ProgramTest):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.good = TINY.read_bytes()

    def file(self, content):
        path = self.folder / "hostile.gguf"
        path.write_bytes(content)
        return path

    def test_what_is_no_model_file_is_named(self):
        absent, damaged = "troupe pull --list", "get it again"
        self.fails(1, "inspect", self.folder / "missing.gguf", says=["missing.gguf", absent])
        self.fails(1, "inspect", self.folder, says=[str(self.folder), absent])
        self.fails(1, "inspect", self.file(b""), says=["hostile.gguf", damaged])
        self.fails(1, "inspect", self.file(b"not a model" * 100), says=["hostile.gguf", damaged])
        for words in (["run", "-m"], ["serve", "--port", "0", "-m"], ["tokenize", "-m"], ["template", "-m"],
                      ["eval", "perplexity", "-f", TINY.parent / "held_out.txt", "-m"],
                      ["eval", "logits", "--against", TINY.with_suffix(".json"), "-m"]):
            after = [] if words[0] in ("serve", "eval") else ["hello"]
            self.fails(1, *words, self.file(b"GGUF"), *after, says=["hostile.gguf", damaged, "troupe inspect"])
            self.fails(1, *words, self.folder / "missing.gguf", *after, says=["missing.gguf", absent])
        self.fails(2, "run", "-m", "no-such-model", "hello", says=["no-such-model", "smollm2-135m-instruct"])

    def test_a_file_cut_anywhere_is_refused(self):
        size = len(self.good)
        for length in {*range(0, 64, 3), *range(64, size, size // 40), size - 1}:
            with self.subTest(length=length):
                self.fails(1, "inspect", self.file(self.good[:length]), says=["hostile.gguf", "get it again"])

    def test_flipped_bits_are_refused_or_harmless_but_never_a_crash(self):
        draw = random.Random(7)
        for _ in range(120):
            at, bit = draw.randrange(0, 40_000), draw.randrange(8)
            content = bytearray(self.good)
            content[at] ^= 1 << bit
            done = troupe("inspect", self.file(bytes(content)))
            self.assertIn(done.returncode, (0, 1), f"bit {bit} of byte {at}: {done.stderr}")
            self.assertEqual(len(done.stderr.splitlines()), done.returncode, f"bit {bit} of byte {at}: {done.stderr}")

    def test_huge_counts_are_refused(self):
        for at, name in [(8, "tensors"), (16, "keys")]:
            for count in (1 << 60, (1 << 64) - 1, 1 << 32):
                with self.subTest(name=name, count=count):
                    content = bytearray(self.good)
                    struct.pack_into("<Q", content, at, count)
                    self.fails(1, "inspect", self.file(bytes(content)), says=["hostile.gguf", "get it again"])

    def test_a_model_larger_than_memory_is_refused_before_any_is_taken(self):
        widest, heads, head = 1 << 18, 1024, 256
        content = bytearray(self.good)
        for key, value in {"embedding_length": widest, "feed_forward_length": widest, "attention.head_count": heads,
                           "attention.head_count_kv": 1, "rope.dimension_count": head}.items():
            at = content.index(f"llama.{key}".encode() + struct.pack("<I", UINT32)) + len(f"llama.{key}") + 4
            struct.pack_into("<I", content, at, value)
        tensors, data = layout(self.good)
        end = matrix_bytes = 0
        for name, tensor in tensors.items():
            rank = (tensor.offset_at - 4 - tensor.shape_at) // 8
            rows = {"token_embd": 512, "attn_k": head, "attn_v": head}.get(name.split(".")[-2], widest)
            shape = (widest, rows)[:rank]
            struct.pack_into(f"<{rank}QIQ", content, tensor.shape_at, *shape, F32, end)
            end += 4 * widest * (rows if rank == 2 else 1)
            matrix_bytes += 4 * widest * rows if rank == 2 else 0
        path = self.file(bytes(content[:data]))
        try:
            os.truncate(path, data + end)  # with no block of the disk behind it
        except OSError as unable:
            self.skipTest(f"no sparse file of {end} bytes here: {unable}")
        with open("/proc/meminfo", encoding="ascii") as facts:
            total = 1024 * int(next(line.split()[1] for line in facts if line.startswith("MemTotal")))
        if matrix_bytes <= total:
            self.skipTest("this machine can hold it")
        text = self.fails(1, "run", "-m", path, "--raw", "hello", says=["hostile.gguf", "use a smaller model"])
        # Nor is it by those that load it without an engine.
        self.fails(1, "eval", "perplexity", "-m", path, "--file", __file__, says=["hostile.gguf", "use a smaller model"])
        sizes = re.search(r": (\S+) (\SiB) of weights, (\S+) (\SiB) of memory are available: ", text)
        self.assertIsNotNone(sizes, text)
        unit = {"MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
        self.assertAlmostEqual(float(sizes[1]) * unit[sizes[2]] / matrix_bytes, 1, delta=0.01)
        self.assertLess(float(sizes[3]) * unit[sizes[4]], 1.01 * total)

    def test_a_damaged_catalogue_model_is_to_be_pulled_again(self):
        model = self.folder / "troupe" / "models" / "smollm2-135m-instruct-q4_1.gguf"
        model.parent.mkdir(parents=True)
        model.write_bytes(self.good[:1000])
        for words in (["run", "hello"], ["inspect", "smollm2-135m-instruct"], ["tokenize", "hello"]):
            self.fails(1, *words, env={"XDG_CACHE_HOME": str(self.folder)},
                       says=[str(model), "troupe pull smollm2-135m-instruct"])

    def test_overlapping_tensors_are_refused(self):
        tensors, _ = layout(self.good)
        content = bytearray(self.good)
        struct.pack_into("<Q", content, tensors["blk.0.attn_k.weight"].offset_at, 0)
        self.fails(1, "inspect", self.file(bytes(content)), says=["hostile.gguf", "overlap"])

    def test_wrong_shapes_are_refused_by_name(self):
        tensors, _ = layout(self.good)
        content = bytearray(self.good)
        rows_at = tensors["blk.0.attn_k.weight"].shape_at + 8
        rows, = struct.unpack_from("<Q", content, rows_at)
        struct.pack_into("<Q", content, rows_at, rows // 2)
        self.fails(1, "run", "-m", self.file(bytes(content)), "--raw", "hello", says=["hostile.gguf", "blk.0.attn_k.weight"])

    def test_types_that_cannot_be_multiplied_are_refused_by_name(self):
        tensors, _ = layout(self.good)
        content = bytearray(self.good)
        struct.pack_into("<I", content, tensors["blk.0.attn_norm.weight"].offset_at - 4, 26)  # I32, as wide as F32
        done = troupe("inspect", self.file(bytes(content)))
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"blk.0.attn_norm.weight", done.stderr)
        self.assertIn(b"parameters", done.stdout)

    def test_a_vocabulary_that_cannot_be_read_is_refused(self):
        content = self.good.replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz", 1)
        self.fails(1, "inspect", self.file(content), says=["hostile.gguf", "tokenizer"])

    def test_what_can_be_read_of_a_model_that_cannot_be_run_is_told(self):
        unknown = self.file(self.good.replace(b"llama", b"lllma"))
        done = troupe("inspect", unknown)
        self.assertEqual(done.returncode, 1)
        text = done.stdout.decode()
        for part in ("architecture   lllma, cannot be run", "parameters", "tokenizer      512 tokens", "chat template  174 B"):
            self.assertIn(part, text)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn(b"'lllma' is not supported", done.stderr)

    def test_a_file_of_a_vocabulary_only_is_no_failure(self):
        content = bytearray(self.good)
        struct.pack_into("<Q", content, 8, 0)  # no tensors, and none of their entries
        tensors, _ = layout(self.good)
        first = min(entry.shape_at for entry in tensors.values())  # behind name and rank
        name = next(name for name, entry in tensors.items() if entry.shape_at == first)
        done = troupe("inspect", self.file(bytes(content[:first - 4 - len(name) - 8])))
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        for part in (b"architecture   llama", b"holds a vocabulary only", b"tokenizer      512 tokens", b"chat template  174 B"):
            self.assertIn(part, done.stdout)
        self.assertNotIn(b"parameters", done.stdout)

    def test_folders_are_told_of_in_the_same_way(self):
        tokenizer = (ROOT / "tests" / "data" / "tokenizers_tiny" / "spm_bpe.json").read_bytes()
        (self.folder / "tokenizer.json").write_bytes(tokenizer)
        done = troupe("inspect", self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(b"holds a vocabulary only", done.stdout)
        self.assertIn(b"tokenizer      517 tokens", done.stdout)
        (self.folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
        (self.folder / "config.json").write_text('{"model_type": "mamba9", "architectures": ["Mamba9"]}', encoding="utf-8")
        done = troupe("inspect", self.folder)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1))
        self.assertIn(b"Mamba9", done.stderr)
        for part in (b"architecture   mamba9, cannot be run", b"tokenizer      517 tokens", b"chat template  14 B"):
            self.assertIn(part, done.stdout)

    def test_scales_that_are_not_numbers_are_refused_by_name(self):
        tensors, data = layout(self.good)
        content = bytearray(self.good)
        offset, = struct.unpack_from("<Q", content, tensors["blk.0.ffn_down.weight"].offset_at)
        struct.pack_into("<H", content, data + offset, 0x7E00)  # a NaN as FP16: the scale of the first block
        self.fails(1, "run", "-m", self.file(bytes(content)), "--raw", "hello",
                   says=["hostile.gguf", "blk.0.ffn_down.weight"])

    def test_traces_that_are_none_are_refused(self):
        path = self.folder / "trace.json"
        self.fails(1, "replay", path, says=["trace.json"])
        path.write_text('{"model": [}', encoding="utf-8")
        self.fails(1, "replay", path, says=["trace.json", "at byte 11"])
        path.write_text('{"model_path": 3}', encoding="utf-8")
        self.fails(1, "replay", path, says=["trace.json"])


if __name__ == "__main__":
    unittest.main()
