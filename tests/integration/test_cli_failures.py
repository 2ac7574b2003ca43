# SPDX-License-Identifier: Apache-2.0
"""Wrong usage and a hostile world: each ends with status 1 or 2 and one line that names the thing and the way out."""
import collections
import json
import os
import pathlib
import random
import re
import resource
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

from program import BINARY, ProgramTest, ROOT, TINY, troupe


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


class Usage(ProgramTest):

    def test_an_unknown_command_suggests_the_nearest(self):
        self.fails(2, "sevre", says=['"serve"'])
        self.fails(2, "bench", says=["troupe bench", "serve"])
        self.fails(2, "eval", "perplex", says=["perplexity, logits"])
        self.fails(2, "evl", says=['"eval"'])
        for distant in ("qqqqqqqq", "foo", "xyz"):
            self.assertNotIn("mean", self.fails(2, distant, says=[distant, "troupe --help"]))
        for first, seconds in [("eval", {"perplexity": "perplexity over a text", "logits": "against known ones"}),
                               ("bench", {"serve": "measure it"})]:
            done = troupe(first, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            text = done.stdout.decode()
            for second, purpose in seconds.items():
                self.assertRegex(text, rf"{second} +.*{purpose}")
                self.assertIn(f"  troupe {first} {second} ", text.split("Examples:")[1])
            self.assertEqual(troupe("help", first).stdout, done.stdout)
        self.assertEqual(troupe("help", "serve").stdout, troupe("serve", "--help").stdout)

    def test_no_command_prints_the_overview(self):
        done = troupe()
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"Commands:", done.stdout)

    def test_help_of_every_command_is_no_failure(self):
        overview = troupe("--help").stdout.decode()
        names = [line[2:19].strip() for line in overview.splitlines() if line.startswith("  ")]
        self.assertGreaterEqual(len(names), 13)
        for name in names:
            done = troupe(*name.split(), "--help")
            self.assertEqual((done.returncode, done.stderr), (0, b""), name)
            self.assertIn(f"troupe {name}".encode(), done.stdout)

    def test_help_of_run_leaves_the_settings_of_servers_to_help_all(self):
        short, whole = (troupe("run", flag) for flag in ("--help", "--help-all"))
        self.assertEqual((short.returncode, whole.returncode, whole.stderr), (0, 0, b""))
        for flag in (b"--model", b"--threads", b"--kv-memory", b"--max-context", b"--trace-dir", b"--help-all"):
            self.assertIn(flag, short.stdout)
        for flag in (b"--max-queue", b"--stream-credit", b"--kv-high-watermark", b"--max-batch"):
            self.assertNotIn(flag, short.stdout)
            self.assertIn(flag, whole.stdout.split(b"Further settings:")[1])
        self.assertIn(b"--max-queue", troupe("serve", "--help").stdout)
        self.assertNotIn(b"--max-queue", troupe("eval", "perplexity", "--help").stdout)
        # What is not shown is taken all the same.
        self.assertEqual(troupe("run", "-m", TINY, "--raw", "-n", "1", "--max-queue", "3", "The").returncode, 0)

    def test_an_empty_prompt_is_refused_with_and_without_a_template(self):
        for words, stdin in [([""], None), (["--raw", ""], None), ([], b""), (["--raw"], b"\n"),
                             (["--system", "x", ""], None)]:
            self.fails(2, "run", "-m", "not-looked-for", *words, stdin=stdin, says=["prompt is empty"])

    def test_an_unknown_flag_suggests_the_nearest(self):
        self.fails(2, "serve", "--prot", "1", says=["--prot", "--port"])
        self.fails(2, "run", "--max-token", "1", "hello", says=["--max-tokens"])
        self.fails(2, "serve", "surplus", says=["surplus"])
        for distant in ("--max", "--quiet", "--foo"):
            self.assertNotIn("mean", self.fails(2, "run", distant, "hello", says=[distant, "troupe run --help"]))

    def test_absurd_values_name_the_flag_and_what_it_takes(self):
        for flag, value, range_ in [("--port", "65536", "0 to 65535"), ("--port", "-1", "0 to 65535"),
                                    ("--port", "80x", "0 to 65535"), ("--tcp-port", "-2", "-1 to 65535"),
                                    ("--max-batch", "0", "1 to 4096"), ("--max-batch", "99999999999999999999", "1 to 4096"),
                                    ("--max-queue", "-1", "0 to 60000"), ("--kv-memory", "-1", "a size"),
                                    ("--kv-memory", "256M", "a size"), ("--kv-memory", "99999TiB", "a size"),
                                    ("--kv-high-watermark", "1.5", "0.01 to 1"), ("--kv-high-watermark", "nan", "0.01 to 1"),
                                    ("--max-wait", "1e9", "0 to 10000"), ("--isa", "sse9", "avx2"),
                                    ("--threads", "100000", "0 to 1024"), ("--log-level", "loud", "debug")]:
            with self.subTest(flag=flag, value=value):
                self.fails(2, "serve", flag, value, says=[flag, value, range_])
        for flag, value in [("--temperature", "-1"), ("--temperature", "nan"), ("--top-p", "0"), ("--min-p", "2"),
                            ("--max-tokens", "-1"), ("--seed", "-1"), ("--seed", "1e3"), ("--repetition-penalty", "0")]:
            with self.subTest(flag=flag, value=value):
                self.fails(2, "run", flag, value, "hello", says=[flag, value])

    def test_what_no_answer_can_come_of_is_refused_before_the_model_is_loaded(self):
        self.fails(2, "run", "-m", TINY, "--max-context", "1", "hello", says=["max_context", "2 or more"])
        self.fails(2, "run", "-m", TINY, "--stop", "", "hello", says=["--stop", "1 to 1024"])
        self.fails(2, "run", "-m", TINY, "--stop", "a" * 1025, "hello", says=["--stop", "1 to 1024"])
        self.fails(2, "run", "-m", TINY, *["--stop", "a"] * 17, "hello", says=["--stop", "16"])
        self.fails(2, "run", "-m", TINY, "--kv-memory", "1KiB", "hello", says=["kv-memory", "1.0 KiB"])

    def test_help_gives_units_and_no_defaults_that_are_none(self):
        text = " ".join(troupe("serve", "--help").stdout.decode().split())
        for flag in ("--max-wait", "--slow-consumer", "--queue-timeout", "--drain-timeout"):
            self.assertRegex(text, flag + r" [^(]*\(\d+ to \d+ ms\)")
        seed, = [line for line in troupe("run", "--help").stdout.decode().splitlines() if "--seed" in line]
        self.assertNotIn("default", seed)

    def test_a_flag_without_its_value_is_named(self):
        self.fails(2, "serve", "--port", says=["--port needs a value: HTTP and WebSocket port", "troupe serve --help"])
        self.fails(2, "run", "--model", says=["--model needs a value: GGUF file", "troupe run --help"])
        self.fails(2, "run", "-m", TINY, "--model=x", "hi", says=["--model is given more than once"])
        self.fails(2, "run", "-n", says=["--max-tokens needs a value"])

    def test_an_empty_host_is_refused_and_does_not_stand_for_every_network(self):
        for words in (["--host", ""], ["--set", "server.host="]):
            self.fails(2, "serve", "-m", TINY, "--port", "0", *words, says=["server.host", "127.0.0.1", "0.0.0.0"])

    def test_settings_that_contradict_each_other_are_named(self):
        self.fails(2, "serve", "--kv-low-watermark", "0.96", says=["kv_low_watermark", "kv_high_watermark"])
        self.fails(2, "serve", "--max-step-tokens", "8", says=["max_step_tokens", "max_batch"])

    def test_bench_names_what_is_wrong_with_its_arguments(self):
        self.fails(2, "bench", "serve", "localhost:80", says=["http://"])
        for port in ("0", "65536", "99999", "8080x", "-1", "4294967297"):
            self.fails(2, "bench", "serve", f"http://127.0.0.1:{port}/v1", says=[f'"{port}"', "1 to 65535"])
        self.fails(2, "bench", "serve", "http://127.0.0.1:1", "--prompt-words", "9-3", says=["--prompt-words"])
        self.fails(2, "bench", "serve", "http://127.0.0.1:1", "--extra", "n=[", says=["--extra"])
        self.fails(1, "bench", "serve", "http://127.0.0.1:1", says=["127.0.0.1:1"])


class Configuration(ProgramTest):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "troupe.toml"

    def test_a_wrong_key_names_the_nearest_the_file_and_the_line(self):
        self.path.write_text("[engine]\nmax_queue = 3\nmax_bacth = 4\n", encoding="utf-8")
        self.fails(2, "serve", "--config", self.path, says=[f"{self.path}:3", "engine.max_bacth", "engine.max_batch"])

    def test_a_wrong_value_names_the_key_the_line_and_the_range(self):
        self.path.write_text("[server]\nport = 99999\n", encoding="utf-8")
        self.fails(2, "serve", "--config", self.path, says=[f"{self.path}:2", "server.port", "0 to 65535"])

    def test_what_is_not_toml_names_the_line(self):
        self.path.write_text("[server]\nport = = [[[\n", encoding="utf-8")
        self.fails(2, "serve", "--config", self.path, says=[f"{self.path}:2"])

    def test_a_missing_file_is_named(self):
        self.fails(1, "serve", "--config", self.path, says=[str(self.path), "--dump-config"])

    def test_flags_win_over_the_file_and_the_dump_reads_back(self):
        self.path.write_text('[engine]\nmax_batch = 3\nkv_memory = "64MiB"\n', encoding="utf-8")
        first = troupe("serve", "--config", self.path, "--max-batch", "5", "--dump-config")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn(b"max_batch = 5", first.stdout)
        self.assertIn(b'kv_memory = "64MiB"', first.stdout)
        self.path.write_bytes(first.stdout)
        again = troupe("serve", "--config", self.path, "--dump-config")
        self.assertEqual(first.stdout, again.stdout)


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


class Machine(ProgramTest):

    def test_a_port_in_use_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.fails(1, "serve", "-m", TINY, "--port", port, says=[str(port), "--port"])
            self.fails(1, "serve", "-m", TINY, "--port", 0, "--tcp-port", port, says=[str(port), "--tcp-port"])

    def test_an_address_that_is_not_this_machines_is_named(self):
        self.fails(1, "serve", "-m", TINY, "--port", 0, "--host", "203.0.113.1", says=["203.0.113.1"])

    def test_more_memory_than_there_is_is_refused_before_it_is_taken(self):
        asked = ("serve", "-m", TINY, "--port", 0, "--kv-memory", "60TiB")
        self.fails(1, *asked, "--log-level", "warning", says=["kv-memory"])
        lines = troupe(*asked).stderr.decode().splitlines()  # the forecast comes first, whatever the size
        self.assertEqual(len(lines), 2, lines)
        self.assertIn("memory forecast", lines[0])
        self.assertIn("kv-memory", lines[1])

    def test_a_trace_folder_that_cannot_be_written_is_named(self):
        self.fails(1, "serve", "-m", TINY, "--port", 0, "--trace-dir", "/proc/traces", says=["/proc/traces"])

    def test_files_for_every_connection_are_asked_for_and_what_lacks_is_said(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, self.files))
        for self.files, says in ((100, "max_connections lowered to 36"), (4096, "")):
            process = subprocess.Popen([BINARY, "serve", "-m", TINY, "--port", "0", "--log-level", "warning"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       preexec_fn=few)
            try:
                for line in process.stdout:
                    if line.startswith("ready"):
                        break
                self.assertGreaterEqual(resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[0], min(1024, self.files))
            finally:
                process.kill()
                _, text = process.communicate()
            self.assertIn(says, text)
            self.assertEqual(len(text.splitlines()), 1 if says else 0, text)

    def test_threads_that_cannot_be_started_are_told_with_the_way_out(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NPROC, (self.processes, self.processes))
            if os.geteuid() == 0:  # for whom the limit does not hold
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
        for self.processes in (1, 2):  # not even the engine's own; that one, and none to compute
            try:
                done = subprocess.run([BINARY, "run", "-m", TINY, "--threads", "1", "--raw", "hi"],
                                      env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}, stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=60, check=False, preexec_fn=few)
            except (PermissionError, subprocess.SubprocessError) as unable:
                print(f"skipped: the program cannot be run as another user: {unable}")
                self.skipTest(str(unable))
            if "ermission denied" in done.stderr:
                print("skipped: another user cannot read what the program needs")
                self.skipTest(done.stderr)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
            for part in ("thread cannot be started", "ulimit -u", "--threads"):
                self.assertIn(part, done.stderr)

    def test_a_full_disk_under_standard_output_is_noticed(self):
        with open("/dev/full", "wb") as full:
            self.fails(1, "doctor", "--config-reference", stdout=full, says=["standard output"])


class Pull(ProgramTest):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        self.cache = self.folder / "cache"
        self.env = {"XDG_CACHE_HOME": str(self.cache), "PATH": str(self.programs)}
        self.model = self.cache / "troupe" / "models" / "smollm2-135m-instruct-q4_1.gguf"

    def program(self, name, script):
        path = self.programs / name
        path.write_text("#!/bin/bash\n" + script, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def left_behind(self):
        return [p for p in self.cache.rglob("*.gguf")]

    def test_a_cache_that_cannot_be_written_is_named(self):
        for place in ("/proc/cache", "/dev/null"):
            self.fails(1, "pull", env={"XDG_CACHE_HOME": place}, says=[place, "XDG_CACHE_HOME"])
        self.fails(1, "pull", env={"XDG_CACHE_HOME": "", "HOME": ""}, says=["XDG_CACHE_HOME"])

    def test_a_model_that_is_there_needs_no_network(self):
        real = os.environ.get("TROUPE_TEST_MODEL") or pathlib.Path(
            os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "troupe" / "models" / self.model.name
        if not pathlib.Path(real).is_file():
            print(f"skipped: {real} is absent")
            self.skipTest("the default model is absent")
        self.model.parent.mkdir(parents=True)
        self.model.symlink_to(real)
        for name in ("python3", "curl"):  # what a download would take
            self.program(name, f'touch "{self.folder}/asked"\nexit 1\n')
        done = troupe("pull", env=self.env)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"already here", done.stderr)
        self.assertFalse((self.folder / "asked").exists())

    def test_an_unknown_model_lists_the_known_ones(self):
        self.fails(2, "pull", "gpt-9", says=["gpt-9", "smollm2-135m-instruct"])

    def test_without_pip_and_curl_it_says_what_to_install(self):
        self.fails(1, "pull", env=self.env, says=["pip", "curl"])
        self.assertEqual(self.left_behind(), [])

    def test_a_cut_download_leaves_no_model_and_is_gone_on_with(self):
        self.program("curl", 'while [ "$1" != --output ]; do [ "$1" = --continue-at ] && resumed=yes; shift; done\n'
                             '[ "$resumed" = yes ] || exit 2\nprintf half >>"$2"\necho "curl: (18) cut" >&2\nexit 18\n')
        text = troupe("pull", env=self.env)
        self.assertEqual(text.returncode, 1)
        self.assertIn(b"curl: (18) cut", text.stderr.splitlines()[-1])
        self.assertEqual(self.left_behind(), [])
        part, = self.cache.rglob("*.part")
        troupe("pull", env=self.env)
        self.assertEqual(part.read_bytes(), b"halfhalf")

    def test_a_download_with_another_hash_is_removed(self):
        self.program("curl", 'while [ "$1" != --output ]; do shift; done\nprintf wrong >"$2"\n')
        done = troupe("pull", env=self.env)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"sha256", done.stderr.splitlines()[-1])
        self.assertEqual(self.left_behind(), [])
        self.assertEqual(list(self.cache.rglob("*.part")), [])

    def test_pips_own_last_line_is_shown(self):
        self.program("python3", 'case "$*" in *--version*) exit 0;; esac\necho "ERROR: No matching distribution" >&2\nexit 1\n')
        done = troupe("pull", env=self.env)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"ERROR: No matching distribution", done.stderr.splitlines()[-1])
        self.assertEqual(self.left_behind(), [])

    def test_the_line_with_pips_real_cause_is_shown_and_curl_tried_next(self):
        self.program("python3", 'case "$*" in *--version*) exit 0;; esac\n'
                                'echo "WARNING: Retrying after SSLError(1, certificate verify failed)" >&2\n'
                                'echo "ERROR: Could not find a version" >&2\n'
                                'echo "ERROR: No matching distribution" >&2\nexit 1\n')
        self.program("curl", 'echo "curl: (6) no such host" >&2\nexit 6\n')
        done = troupe("pull", env=self.env)
        self.assertEqual(done.returncode, 1)
        last = done.stderr.decode().splitlines()[-1]
        for part in ("certificate verify failed", "No matching distribution", "curl: (6) no such host"):
            self.assertIn(part, last)


class Scripts(unittest.TestCase):

    def fails(self, status, *command, says):
        done = subprocess.run([str(ROOT / command[0]), *command[1:]], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (status, 1), done.stderr)
        self.assertIn(says, done.stderr)

    def test_wrong_arguments_are_named_before_anything_is_done(self):
        self.fails(2, "quickstart", "--bogus", says="--bogus")
        self.fails(2, "quickstart", "--model", says="--model")
        self.fails(1, "quickstart", "--model", "/nonexistent/a.gguf", says="/nonexistent/a.gguf")
        self.fails(2, "check", "--bogus", says="--bogus")

    def test_a_relative_model_is_looked_for_where_the_caller_stands(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([str(ROOT / "quickstart"), "--model", "README.md"], cwd=folder, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{folder}/README.md", done.stderr)

    def tool(self, name, content, *before):
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            return subprocess.run([sys.executable, str(ROOT / "tools" / name), *before, file.name], capture_output=True,
                                  text=True, timeout=60, check=False)

    def test_a_failed_set_up_of_a_class_is_counted(self):
        log = json.dumps({"name": "t", "result": "FAIL", "stdout": "",
                          "stderr": "Ran 0 tests in 0.001s\n\nFAILED (errors=1)\n"})
        self.assertEqual(self.tool("count_tests.py", log + "\n", "label").stdout, "0 1 0 label: t\n")

    def test_a_skipped_case_is_counted_once_however_much_it_lacks(self):
        log = json.dumps({"name": "t", "result": "OK", "stderr": "",
                          "stdout": "Running 3 test cases...\nskipped: a is absent\nand: b is absent\nskipped: a is absent\n"})
        self.assertEqual(self.tool("count_tests.py", log + "\n", "label").stdout, "1 0 2 label: t\n")

    def test_a_simulation_that_was_not_built_is_a_failure_of_the_check(self):
        text = (ROOT / "check").read_text("utf-8")
        body = text[text.index("simulation() {"):].split("\n}\n")[0] + "\n}\n"
        script = 'single() { echo "$1: $2"; [[ $2 -eq 0 ]]; }\nseeds=7\n' + body + "simulation"
        with tempfile.TemporaryDirectory() as folder:
            programs = pathlib.Path(folder) / "build" / "release" / "tests" / "sim"
            programs.mkdir(parents=True)
            for built, statuses, status in [([], (127, 127), 1), (["troupe-sim"], (0, 127), 1),
                                            (["troupe-sim", "troupe-sim-doors"], (0, 0), 0)]:
                for name in built:
                    (programs / name).write_text("#!/bin/sh\n", encoding="utf-8")
                    (programs / name).chmod(0o755)
                done = subprocess.run(["bash", "-c", script], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                                      text=True, timeout=60, check=False)
                self.assertEqual(done.stdout.splitlines(), [f"troupe-sim, 7 seeds: {statuses[0]}",
                                                            f"troupe-sim-doors, 7 seeds: {statuses[1]}"])
                self.assertEqual(done.returncode, status)

    def test_the_last_line_of_the_check_is_what_passed_and_what_failed(self):
        for counts, status, lines in [("3 0 0 a\n1 0 0 b\n", 0, ["4 passed, 0 failed"]),
                                      ("3 0 2 a\n", 0, ["skipped: a (2 of 5)", "2 skipped", "3 passed, 0 failed"]),
                                      ("3 1 2 a: b c\n", 1, ["failed: a: b c", "skipped: a: b c (2 of 6)", "2 skipped", "3 passed, 1 failed"]),
                                      ("0 0 1 a\n", 1, ["skipped: a", "1 skipped", "0 passed, 0 failed"])]:
            done = self.tool("sum_counts.py", counts)
            self.assertEqual((done.returncode, done.stdout.splitlines()), (status, lines), done.stderr)
        self.assertIn("sum_counts.py", (ROOT / "check").read_text("utf-8").splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
