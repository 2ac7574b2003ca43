# SPDX-License-Identifier: Apache-2.0
"""`troupe run` as a person sees it: a pseudo-terminal, typed lines, Ctrl-C and Ctrl-D."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import termios
import time
import unittest

from program import BINARY, ProgramTest, ROOT, TINY, model_without_a_tilde, troupe

LIMIT_S = 60
# An answer that takes many seconds: every step computes the sequence again.
ENDLESS = ["--ignore-eos", "--reference", "--threads", "1", "--preempt-every", "1"]
ENDLESS_TOKENS = 400
CTRL_C, CTRL_D = b"\x03", b"\x04"


def take_terminal():
    """Standard input becomes the controlling terminal, so that Ctrl-C typed there is a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """`troupe run` with a terminal of its own."""

    def __init__(self, *arguments, model=TINY):
        self.main, self.other = pty.openpty()
        self.found = self.modes()
        self.process = subprocess.Popen([BINARY, "run", "-m", str(model), "--raw", "-t", "0", *arguments], stdin=self.other,
                                        stdout=self.other, stderr=self.other, start_new_session=True,
                                        preexec_fn=take_terminal)
        self.seen = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.other)
        os.close(self.main)

    def type(self, data):
        os.write(self.main, data)

    def read(self, timeout):
        if not select.select([self.main], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self.main, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += data
        return bool(data)

    def wait_for(self, pattern):
        """Reads until `pattern` has come since the last match; what came before it is forgotten."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            match = re.search(pattern, self.seen)
            if match:
                self.seen = self.seen[match.end():]
                return match
            if not self.read(1) and self.process.poll() is not None and not self.read(0):
                break
        raise AssertionError(f"{pattern!r} did not come; there is {self.seen!r}, status {self.process.poll()}")

    def modes(self):
        return termios.tcgetattr(self.other)

    def status(self):
        deadline = time.monotonic() + LIMIT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.1)
        return self.process.poll()


class Chat(ProgramTest):

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        with Terminal(*ENDLESS) as terminal:
            terminal.wait_for(rb"> ")
            terminal.type(b"Once upon a time\n")
            terminal.wait_for(rb"Once upon a time\r\n.{20}")
            terminal.type(CTRL_C)
            tokens = terminal.wait_for(rb"(\d+) tokens.*\r\n> ")[1]
            self.assertLess(int(tokens), ENDLESS_TOKENS)
            self.assertIsNone(terminal.process.poll())
            terminal.type(b"/exit\n")
            self.assertEqual(terminal.status(), 0)

    def test_ctrl_c_at_the_prompt_asks_once_and_then_leaves(self):
        with Terminal() as terminal:
            terminal.wait_for(rb"> ")
            terminal.type(CTRL_C)
            terminal.wait_for(rb"Ctrl-C again.*\r\n> ")
            self.assertIsNone(terminal.process.poll())
            terminal.type(CTRL_C)
            self.assertEqual(terminal.status(), 0)

    def test_ctrl_d_leaves(self):
        with Terminal() as terminal:
            terminal.wait_for(rb"> ")
            terminal.type(CTRL_D)
            self.assertEqual(terminal.status(), 0)

    def test_a_line_longer_than_a_terminal_keeps_in_its_own_mode_comes_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            with Terminal(model=model_without_a_tilde(folder)) as terminal:
                terminal.wait_for(rb"> ")
                for _ in range(12):  # in parts, or the terminal is full of what it shows
                    terminal.type(b"ab " * 200)
                    terminal.wait_for(rb"(ab ){200}")
                terminal.type(b"~\n")
                terminal.wait_for(rb"1 byte of the prompt has no token.*the first at offset 7200\r\n")
                terminal.wait_for(rb"/clear forgets.*\r\n> ")  # more than the tiny model's context

    def test_a_line_is_edited_as_in_a_terminal_s_own_mode(self):
        with Terminal("-n", "8", "--ignore-eos") as terminal:
            terminal.wait_for(rb"> ")
            terminal.type(b"The old man\n")
            answer = terminal.wait_for(rb"The old man\r\n([^\[]*)\[8 tokens.*\r\n> ")[1]
            terminal.type(b"nothing\x15The young\x17old \xc3\xa9\x7fwomb\x7f\x7f\x7f\x7f\x1b[Dman\n")
            terminal.wait_for(rb"\r\n" + re.escape(answer) + rb"\[8 tokens")

    def test_lines_pasted_while_an_answer_comes_are_kept(self):
        with Terminal("-n", "2", "--ignore-eos") as terminal:
            terminal.wait_for(rb"> ")
            terminal.type(b"One\nTwo\nThree\n")
            for line in (rb"One", rb"Two", rb"Three"):
                terminal.wait_for(line + rb"\r\n[^\[]*\[2 tokens.*\r\n> ")

    def test_a_terminal_is_left_as_it_was_found(self):
        for leave, status in ((lambda t: t.type(CTRL_D), 0), (lambda t: t.type(b"/exit\n"), 0),
                              (lambda t: t.process.terminate(), 143)):
            with Terminal() as terminal:
                terminal.wait_for(rb"> ")
                self.assertNotEqual(terminal.modes(), terminal.found)
                leave(terminal)
                self.assertEqual(terminal.status(), status)
                self.assertEqual(terminal.modes(), terminal.found)

    def test_sigterm_ends_a_chat_that_answers(self):
        with Terminal(*ENDLESS) as terminal:
            terminal.wait_for(rb"> ")
            terminal.type(b"Once upon a time\n")
            terminal.wait_for(rb"Once upon a time\r\n.{20}")
            terminal.process.terminate()
            self.assertEqual(terminal.status(), 143)

    def test_a_terminal_stays_blocking_for_those_who_share_it(self):
        with Terminal() as terminal:
            terminal.wait_for(rb"> ")
            terminal.type(b"/help\n")
            terminal.wait_for(rb"/clear.*\r\n> ")
            self.assertFalse(fcntl.fcntl(terminal.other, fcntl.F_GETFL) & os.O_NONBLOCK)

    def test_unknown_commands_are_explained_and_not_sent(self):
        with Terminal() as terminal:
            terminal.wait_for(rb"> ")
            terminal.type(b"/help\n")
            terminal.wait_for(rb"/clear.*\r\n> ")
            terminal.type(b"/clear\n")
            terminal.wait_for(rb"forgotten\r\n> ")

    def test_ctrl_c_stops_a_single_answer_with_status_130(self):
        with Terminal(*ENDLESS, "Once upon a time") as terminal:
            terminal.wait_for(rb".{20}")
            terminal.type(CTRL_C)
            self.assertEqual(terminal.status(), 130)


class Answers(ProgramTest):

    def test_the_same_prompt_gives_the_same_tokens_with_every_way_in(self):
        arguments = ["run", "-m", TINY, "--raw", "-t", "0", "-n", "12"]
        plain = troupe(*arguments, "The old man")
        self.assertEqual((plain.returncode, plain.stderr), (0, b""))
        piped = troupe(*arguments, stdin=b"The old man")
        self.assertEqual(plain.stdout, piped.stdout)
        answer = json.loads(troupe(*arguments, "--json", "The old man").stdout)
        self.assertEqual(plain.stdout, answer["text"].encode() + b"\n")
        self.assertEqual(len(answer["token_ids"]), answer["usage"]["completion_tokens"])
        ids = " ".join(map(str, answer["prompt_token_ids"]))
        self.assertEqual(troupe("tokenize", "-m", TINY, "The old man").stdout.decode().strip(), ids)
        self.assertEqual(troupe("detokenize", "-m", TINY, *ids.split()).stdout, b"The old man")

    def test_bytes_that_the_vocabulary_lacks_are_told_of(self):
        with tempfile.TemporaryDirectory() as folder:
            model = model_without_a_tilde(folder)
            done = troupe("run", "-m", model, "--raw", "-t", "0", "-n", "1", "a~b~~")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.decode(), "troupe run: 3 bytes of the prompt have no token in the vocabulary and are "
                             "left out, the first at offset 1\n")
            chat = troupe("run", "-m", model, "-n", "1", "--system", "~", "ab~")
            self.assertRegex(chat.stderr, rb"system message has no token.*offset 0\n.*the prompt has no token.*offset 2\n")
            ids = troupe("tokenize", "-m", model, "a~b")
            self.assertEqual(ids.stdout, troupe("tokenize", "-m", model, "ab").stdout)
            self.assertIn(b"1 byte of the text has no token in the vocabulary and is left out, the first at offset 1",
                          ids.stderr)
            lines = troupe("tokenize", "-m", model, "--lines", stdin=b'"ab"\n"ab~"\n')
            self.assertRegex(lines.stderr, rb"^troupe tokenize: 1 byte of the text of line 2 has .* offset 2\n$")
            nothing = troupe("run", "-m", model, "--raw", "~")
            self.assertEqual((nothing.returncode, nothing.stdout), (1, b""))
            self.assertIn(b"the prompt has no tokens", nothing.stderr)

    def test_words_in_brackets_reach_the_model_as_they_are(self):
        def prompt_ids(*words):
            done = troupe("run", "-m", TINY, "--raw", "-t", "0", "-n", "1", "--json", *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["prompt_token_ids"]
        for text in ("[INST] hi [/INST]", "[]", "[a,b]", "{}", "[[x]]"):
            ids = [int(i) for i in troupe("tokenize", "-m", TINY, stdin=text.encode()).stdout.split()]
            self.assertEqual(prompt_ids(text), ids, text)
            self.assertEqual(troupe("tokenize", "-m", TINY, text).stdout, troupe("tokenize", "-m", TINY, "--", text).stdout)
            self.assertEqual([int(i) for i in troupe("tokenize", "-m", TINY, text).stdout.split()], ids, text)
        self.fails(1, "tokenize", "-m", TINY, "--file", "[no file]", says=["[no file]:"])
        self.fails(2, "run", "-m", TINY, "--seed", "[1]", "hi", says=['"[1]"'])

    def test_one_line_end_of_a_piped_prompt_is_dropped(self):
        arguments = ["run", "-m", TINY, "--raw", "-t", "0", "-n", "4", "--json"]
        plain, one, two = (json.loads(troupe(*arguments, stdin=text).stdout)["prompt_token_ids"]
                           for text in (b"The old man", b"The old man\n", b"The old man\n\n"))
        self.assertEqual(plain, one)
        self.assertNotEqual(plain, two)

    def test_a_text_with_a_nul_is_printed_whole(self):
        ids = troupe("tokenize", "-m", TINY, stdin=b"a\0b").stdout.split()
        self.assertEqual(troupe("detokenize", "-m", TINY, *(i.decode() for i in ids)).stdout, b"a\0b")

    def test_a_template_renders_a_context_at_a_given_time_without_a_model(self):
        with tempfile.TemporaryDirectory() as folder:
            template, context = (pathlib.Path(folder) / name for name in ("t.jinja", "c.json"))
            template.write_text("{{ bos_token }}{{ strftime_now('%A %d %b %Y') }}|"
                                "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
                                "{{ mood }}{% if add_generation_prompt %}>{% endif %}{{ eos_token }}", encoding="utf-8")
            context.write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}], "bos_token": "<s>",
                                           "eos_token": "</s>", "mood": "calm"}), encoding="utf-8")
            words = ["template", "--template", template, "--context", context, "--now", "2026-11-29T12:00:00"]
            self.assertEqual(troupe(*words).stdout, b"<s>Sunday 29 Nov 2026|user=hi;calm></s>")
            self.assertEqual(troupe(*words, "--no-generation-prompt").stdout, b"<s>Sunday 29 Nov 2026|user=hi;calm</s>")
            for wrong in ("2026-11-31T12:00:00", "2026-11-29", "2026-11-29T12:00:00Z", "now", "", "2026-11-9T12:00:00",
                          " 2026-11-29T12:00:0", "2026-11-29T24:00:00", "2026-11-29T12:00:60"):
                self.fails(2, *words[:-1], wrong, says=["--now", wrong, "2026-11-29T12:00:00"])
            self.fails(2, *words, "--system", "be brief", says=["--system", "--context"])
            self.fails(2, *words, "hello", says=["MESSAGE", "--context"])
            context.write_text('["hi"', encoding="utf-8")
            self.fails(1, *words, says=[str(context), "not valid JSON"])

    def test_a_context_is_bounded_and_its_numbers_are_exact_or_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            template, context = (pathlib.Path(folder) / name for name in ("t.jinja", "c.json"))
            template.write_text("{{ n }}", encoding="utf-8")
            words = ["template", "--template", template, "--context", context]
            for number, shown in [("-9223372036854775808", None), ("9223372036854775807", None), ("1e3", "1000.0"),
                                  ("123456789012345678901234567890.0", "1.2345678901234568e+29"),
                                  ("[" * 60 + "]" * 60, None)]:
                context.write_text('{"n": %s}' % number, encoding="utf-8")
                self.assertEqual(troupe(*words).stdout.decode(), shown or number)
            for number in ("9223372036854775808", "18446744073709551616", "-9223372036854775809", "1" + "0" * 40):
                context.write_text('{"n": {"m": %s}}' % number, encoding="utf-8")
                self.fails(1, *words, says=[str(context), 'integer in "n.m"', "64 bits"])
            context.write_text('{"n": %s}' % ("[" * 100 + "]" * 100), encoding="utf-8")
            self.fails(1, *words, says=[str(context), "nested deeper than 64"])

    def test_ids_come_as_json_and_go_back_byte_for_byte(self):
        text = "The old man\n\n said \u2014 caf\u00e9 ".encode()
        plain = troupe("tokenize", "-m", TINY, stdin=text).stdout
        array = troupe("tokenize", "-m", TINY, "--json", stdin=text).stdout
        self.assertEqual(json.loads(array), [int(i) for i in plain.split()])
        self.assertEqual(troupe("detokenize", "-m", TINY, stdin=plain).stdout, text)
        self.assertEqual(troupe("detokenize", "-m", TINY, stdin=array).stdout, text)
        shown = troupe("tokenize", "-m", TINY, "--show", stdin=text).stdout.decode().splitlines()
        self.assertEqual([int(line.split()[0]) for line in shown], json.loads(array))

    def test_a_tokenizer_json_serves_without_a_model(self):
        folder = ROOT / "tests" / "data" / "tokenizers_tiny"
        for name in ("bpe_llama3", "spm_bpe", "unigram"):
            cases = json.loads((folder / f"{name}.expected.json").read_text())
            lines = "".join(json.dumps(case["text"]) + "\n" for case in cases).encode()
            done = troupe("tokenize", "--tokenizer", folder / f"{name}.json", "--special", "--lines", stdin=lines)
            self.assertEqual(done.stderr, b"")
            self.assertEqual([json.loads(line) for line in done.stdout.splitlines()], [case["ids"] for case in cases])
            ids = b"".join(json.dumps(case["ids"]).encode() + b"\n" for case in cases)
            back = troupe("detokenize", "--tokenizer", folder / f"{name}.json", "--skip-special", "--lines", stdin=ids)
            self.assertEqual([json.loads(line) for line in back.stdout.splitlines()], [case["decoded"] for case in cases])
        bos = troupe("tokenize", "--tokenizer", folder / "bpe_llama3.json", "--bos", "--json", stdin=b"a")
        self.assertEqual(json.loads(bos.stdout), [0, 66])
        text = troupe("detokenize", "--tokenizer", folder / "bpe_llama3.json", 0, 66).stdout
        twice = troupe("tokenize", "--tokenizer", folder / "bpe_llama3.json", "--bos", "--special", stdin=text)
        self.assertEqual((twice.stdout, twice.stderr), (b"0 66\n", b""))
        self.fails(1, "tokenize", "--tokenizer", "/none/tokenizer.json", "x", says=["/none/tokenizer.json"])
        self.fails(1, "tokenize", "--tokenizer", folder / "unigram.expected.json", "x", says=["not an object"])

    def test_a_bos_that_there_is_not_is_said(self):
        tokenizer = json.loads((ROOT / "tests" / "data" / "tokenizers_tiny" / "spm_bpe.json").read_text("utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "t.json"
            path.write_text(json.dumps(tokenizer | {"post_processor": None}), encoding="utf-8")
            plain, asked = (troupe("tokenize", "--tokenizer", path, *more, "a") for more in ((), ("--bos",)))
            self.assertEqual((plain.returncode, plain.stderr), (0, b""))
            self.assertEqual((asked.returncode, asked.stdout), (0, plain.stdout))
            self.assertIn(b"no BOS token", asked.stderr)

    def test_ids_out_of_range_name_their_line(self):
        words = ["detokenize", "-m", TINY, "--lines"]
        self.fails(1, *words, stdin=b"[1,2]\n[3,512]\n", says=["line 2", "512", "0 to 511"])
        self.fails(1, *words, stdin=b"[-1]", says=["line 1", "-1", "0 to 511"])
        self.fails(1, *words, stdin=b"[1.5]", says=["line 1", "1.5E0"])
        self.fails(1, *words, stdin=b"[1]\n[2,,3]", says=["line 2", "not valid JSON at byte 3"])
        self.fails(1, *words, stdin=b"[1]\n{}", says=["line 2", "JSON array"])

    def test_options_that_contradict_each_other_are_refused(self):
        for words in (["--json", "--show", "x"], ["--json", "--count", "x"], ["--show", "--count", "x"],
                      ["--json", "--sha256", "x"], ["--file", "f", "x"], ["--lines", "x"], ["--lines", "--file", "f"],
                      ["--lines", "--show"], ["-m", "a", "--tokenizer", "b", "x"]):
            self.fails(2, "tokenize", *words, says=["excludes", "troupe tokenize --help"])
        self.fails(2, "detokenize", "--lines", "1", says=["excludes"])
        done = troupe("tokenize", "-m", TINY, "--count", "--sha256", "The")
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 2))

    def test_known_logits_agree_or_say_why_not(self):
        def golden(change):
            cases = json.loads((TINY.parent / "tiny_q4_1.json").read_text("utf-8"))["prompts"][:2]
            change(cases[0])
            path.write_text(json.dumps({"prompts": cases}), encoding="utf-8")
            return path

        def other(case):
            step = max(range(len(case["margin"])), key=case["margin"].__getitem__)
            case["greedy"][step] ^= 1

        def nothing(case):
            case["margin"] = [0.0] * len(case["margin"])
            case["first"] = {"ids": [], "logits": []}

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "golden.json"
            words = ["eval", "logits", "-m", TINY, "--against", path]
            golden(lambda case: None)
            done = troupe(*words)
            self.assertEqual((done.returncode, done.stderr), (0, b""), done.stdout)
            self.assertIs(json.loads(troupe(*words, "--json").stdout)["agrees"], True)
            wrong_model = troupe(*words[:2], "-m", TINY.parent / "tiny_mixed.gguf", *words[4:], "--tolerance", "0.0001")
            self.assertEqual((wrong_model.returncode, wrong_model.stderr), (1, b""), wrong_model.stdout)
            golden(other)
            done = troupe(*words)
            self.assertEqual((done.returncode, done.stderr), (1, b""), done.stdout)
            self.assertIn(b"differs: ", done.stdout)
            golden(nothing)
            cases = json.loads(path.read_text("utf-8"))
            path.write_text(json.dumps({"prompts": cases["prompts"][:1]}), encoding="utf-8")
            self.fails(1, *words, says=["golden.json", "nothing to compare"])
            golden(lambda case: case["ids"].append(100_000))
            self.fails(1, *words, says=["another model"])
            path.write_text('{"prompts": [', encoding="utf-8")
            self.fails(1, *words, says=["golden.json", "not valid JSON at byte 13"])
            path.unlink()
            self.fails(1, *words, says=["golden.json"])

    def recorded(self, *arguments):
        """The trace file of one answer of 20 tokens, and what it holds."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        done = troupe("run", "-m", TINY, "-t", "0", "-n", "20", "--ignore-eos", "--trace-dir", folder.name, *arguments,
                      "The")
        self.assertEqual(done.returncode, 0, done.stderr)
        path, = pathlib.Path(folder.name).iterdir()
        return path, json.loads(path.read_text("utf-8"))

    def replays(self, status, path, trace, *flags, says):
        """The trace, written to `path`, must replay with that status and last line, and with nothing before it."""
        path.write_text(json.dumps(trace), encoding="utf-8")
        done = troupe("replay", path, *flags)
        self.assertEqual((done.returncode, done.stderr), (status, b""), done.stdout)
        lines = done.stdout.decode().splitlines()
        self.assertEqual(len(lines), len(says), lines)
        for line, part in zip(lines, says):
            self.assertIn(part, line)

    def test_a_run_makes_the_folder_of_its_traces(self):
        with tempfile.TemporaryDirectory() as folder:
            traces = pathlib.Path(folder) / "not" / "there"
            done = troupe("run", "-m", TINY, "--raw", "-n", "2", "--trace-dir", traces, "The")
            self.assertEqual((done.returncode, done.stderr, len(list(traces.iterdir()))), (0, b"", 1))
        self.fails(1, "run", "-m", TINY, "--raw", "--trace-dir", "/proc/x", "The", says=["--trace-dir /proc/x"])

    def test_a_cancelled_request_replays_up_to_where_it_was_cancelled(self):
        path, whole = self.recorded("--raw")
        self.replays(0, path, whole, says=["identical: 20 tokens"])
        # A client may have got less text than the tokens make: what was held back was never sent.
        for ids, text, says in [(7, 6, "identical: 7 tokens"), (0, 0, "identical: cancelled")]:
            cut = {"finish_reason": "cancelled", "token_ids": whole["token_ids"][:ids], "text": whole["text"][:text]}
            self.replays(0, path, whole | cut, says=[says])
        self.replays(1, path, whole | cut | {"token_ids": whole["token_ids"][:7], "text": "No"}, says=["differs at byte 0"])

    def test_a_replay_takes_the_kernels_of_the_recording(self):
        for flags in (["--isa", "ref"], ["--reference"]):
            path, trace = self.recorded("--raw", *flags)
            self.assertEqual((trace["isa"], trace["reference"]), ("ref", flags == ["--reference"]))
            self.replays(0, path, trace, says=["identical: 20 tokens"])
        # The reference path keeps its KV cache in FP32, so that its fingerprint is its own.
        self.replays(1, path, trace, "--isa", "ref", says=["KV cache: f32, now "])
        path, trace = self.recorded("--raw", "--max-context", "16")
        self.assertEqual(trace["context"], 16)
        self.replays(0, path, trace, says=["identical"])

    def test_a_trace_from_before_kernels_were_recorded_replays_with_the_defaults(self):
        path, trace = self.recorded("--raw")
        for key in ("isa", "reference", "context", "chat"):
            del trace[key]
        self.replays(0, path, trace, says=["identical: 20 tokens"])

    def test_a_chat_replays_although_the_trace_holds_ids_only(self):
        path, trace = self.recorded()
        self.assertEqual(trace["chat"], True)
        self.replays(0, path, trace, says=["identical: 20 tokens"])

    def test_a_replay_under_another_fingerprint_goes_on_only_where_that_is_asked_for(self):
        path, trace = self.recorded("--raw")
        content, plan, kernels, kv = trace["system_fingerprint"].split("-")
        other = trace | {"system_fingerprint": "-".join((content, plan, "sse9", kv))}
        told = f"fingerprint differs in kernels: sse9, now {kernels}"
        self.replays(1, path, other, says=[told + "; --any-fingerprint"])
        self.replays(0, path, other, "--any-fingerprint", says=[told, "identical: 20 tokens"])
        # Kernels that this machine cannot run are named, and replaced by its own when that is asked for.
        path.write_text(json.dumps(other | {"isa": "sse9"}), encoding="utf-8")
        self.fails(1, "replay", path, says=["sse9", "--any-fingerprint"])
        self.replays(0, path, other | {"isa": "sse9"}, "--any-fingerprint", says=[told, "identical: 20 tokens"])

    def test_a_replay_compares_tokens_text_and_end(self):
        path, trace = self.recorded("--raw")
        ids = trace["token_ids"]
        self.replays(1, path, trace | {"token_ids": ids[:5] + [ids[5] ^ 1] + ids[6:]}, says=["differs at token 5"])
        self.replays(1, path, trace | {"token_ids": ids + [0]}, says=["differs at token 20: recorded 0, now the end"])
        self.replays(1, path, trace | {"finish_reason": "stop"}, says=["differs in its end: recorded stop, now length"])
        self.replays(1, path, trace | {"text": trace["text"][:4] + "#"}, says=["differs at byte 4 of the text"])

    def test_a_seed_repeats_a_drawn_answer(self):
        arguments = ["run", "-m", TINY, "--raw", "-t", "1.5", "-n", "24", "--seed"]
        first, again, other = (troupe(*arguments, seed, "The") for seed in ("7", "7", "8"))
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(first.stdout, again.stdout)
        self.assertNotEqual(first.stdout, other.stdout)

    def test_a_stop_text_ends_the_answer_and_is_not_in_it(self):
        free = json.loads(troupe("run", "-m", TINY, "--raw", "-t", "0", "-n", "24", "--json", "The").stdout)
        stop = free["text"][3:6]
        ended = json.loads(troupe("run", "-m", TINY, "--raw", "-t", "0", "-n", "24", "--json", "--stop", stop, "The").stdout)
        self.assertEqual(ended["finish_reason"], "stop")
        self.assertEqual(ended["text"], free["text"][:free["text"].index(stop)])

    def test_what_never_fits_the_context_is_one_line(self):
        self.fails(1, "run", "-m", TINY, "--raw", "--max-context", "16", "word " * 400, says=["context"])


FAULTS_SEEN = 16384  # pages at least; all that the tiny model needs are some thousands


def faults(pid):
    """Page faults of a process so far: what it reads through a mapping, even if it lets go of it; 0 when it has just ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[7]) + int(fields[9])


class Loading(ProgramTest):
    """A start that is asked to end, with a file whose bytes take minutes to read: its end is a hole."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = pathlib.Path(folder.name) / "long.gguf"
        shutil.copy(TINY, self.model)
        os.truncate(self.model, 256 << 30)

    def ended(self, number, *words):
        process = subprocess.Popen([BINARY, *words, "-m", str(self.model), "--log-level", "info", "--kv-memory", "4MiB"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            for line in process.stderr:
                if b"memory forecast" in line:
                    break
            while process.poll() is None and faults(process.pid) < FAULTS_SEEN:
                pass  # the fingerprint is being taken: far more was read than the tensors hold
            process.send_signal(number)
            return process.wait(LIMIT_S)
        finally:
            if process.poll() is None:
                process.kill()
            out, _ = process.communicate()
            self.assertEqual(out, b"")

    def test_a_signal_ends_a_server_that_loads(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.assertEqual(self.ended(number, "serve", "--port", "0"), 0)

    def test_a_signal_ends_a_run_that_loads(self):
        self.assertEqual(self.ended(signal.SIGTERM, "run", "hello"), 143)
        self.assertEqual(self.ended(signal.SIGINT, "run", "hello"), 130)


class Server(ProgramTest):

    def test_signals_drain_and_end_with_status_0(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process = subprocess.Popen([BINARY, "serve", "-m", str(TINY), "--port", "0", "--kv-memory", "4MiB"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                lines = []
                for line in process.stdout:
                    lines.append(line.decode())
                    if line.startswith(b"ready"):
                        break
                text = "".join(lines)
                for part in ("model", "kernels", "memory", "http://127.0.0.1:"):
                    self.assertIn(part, text)
                process.send_signal(number)
                self.assertEqual(process.wait(LIMIT_S), 0, process.stderr.read())
            finally:
                if process.poll() is None:
                    process.kill()
                process.communicate()


if __name__ == "__main__":
    unittest.main()
