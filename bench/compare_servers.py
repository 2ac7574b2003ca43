# SPDX-License-Identifier: Apache-2.0
"""Starts two servers in turn on the same model, loads each with `troupe bench serve`, and compares tokens per second.

One measurement is one fresh server: start, warm-up, load, stop. Rounds go A B, B A, A B, ... so that a drift of the
machine touches both; a round gives one ratio per number of clients, and the medians of those ratios are the result.
"""
import argparse
import dataclasses
import json
import math
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HOST = "127.0.0.1"
START_LIMIT_S = 120
STOP_LIMIT_S = 30
WARM_UP_TOKENS = 16

# Tried once each before the rounds; the fastest at each number of clients is the one compared with.
LLAMA_CHOICES = [
    ["-fa", "on", "--no-kv-unified"],
    ["-fa", "on", "--kv-unified"],
    ["-fa", "off", "--no-kv-unified"],
    ["-fa", "on", "--no-kv-unified", "-b", "512", "-ub", "256"],
]


@dataclasses.dataclass
class Sample:
    tokens_per_s: float
    report: dict  # what the load generator printed
    cpu_s: float  # of the server, from its start
    resident_mib: float
    stolen: float  # share of the machine's time that went to other guests


def free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def machine_ticks():
    """(all, stolen) ticks of all processors since boot"""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return sum(fields), fields[7]


class Server:
    """A running server; leaves nothing behind, whatever happens inside the `with`."""

    def __init__(self, command, log_path):
        self.command = command
        self.log_path = log_path

    def __enter__(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(self.command,
                                            stdout=log,
                                            stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def wait_until_healthy(self, url):
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(url + "/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.05)
        status = self.process.poll()
        state = "is still not healthy" if status is None else f"ended with status {status}"
        lines = pathlib.Path(self.log_path).read_text(errors="replace").splitlines()[-5:]
        raise RuntimeError("\n  ".join(
            [f"{self.command[0]} {state}" + ("; its last lines:" if lines else ""), *lines]))

    def usage(self):
        """(CPU seconds, peak resident MiB) so far"""
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        cpu = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return cpu, int(peak.split()[1]) / 1024


def load(options, url, clients, requests, tokens, text):
    command = [
        options.troupe, "bench", "serve", url, "--clients",
        str(clients), "--requests",
        str(requests), "--prompt-words",
        str(options.prompt_words), "--max-tokens",
        str(tokens), "--text",
        str(text), "--json"
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout)


def tokens_per_s(report, requests, tokens):
    """Generated tokens per second of wall time; refuses a run in which any request failed or stopped early."""
    statuses = {str(status): count for status, count in report["statuses"].items()}
    if statuses != {"200": requests}:
        raise RuntimeError(f"expected {requests} answers with status 200, got {statuses}")
    if report["tokens"] != requests * tokens:
        raise RuntimeError(f"expected {requests * tokens} tokens, got {report['tokens']}")
    return report["tokens"] / report["wall_s"]


def measure(options, command, clients, folder):
    """One fresh server under load."""
    port = free_port()
    url = f"http://{HOST}:{port}"
    requests = max(options.requests, 2 * clients)
    with Server(command(port, clients), os.path.join(folder, "server.log")) as server:
        server.wait_until_healthy(url)
        load(options, url, clients, clients, WARM_UP_TOKENS, options.warm_up_text)
        cpu_before, _ = server.usage()
        all_before, stolen_before = machine_ticks()
        report = load(options, url, clients, requests, options.max_tokens, options.text)
        all_after, stolen_after = machine_ticks()
        cpu, resident = server.usage()
    stolen = (stolen_after - stolen_before) / max(1, all_after - all_before)
    return Sample(tokens_per_s(report, requests, options.max_tokens), report, cpu - cpu_before, resident,
                  stolen)


def troupe_command(options):
    return lambda port, clients: [
        options.troupe, "serve", "--model",
        str(options.model), "--host", HOST, "--port",
        str(port), *options.troupe_args
    ]


def llama_command(options, choice):
    """llama-server with one slot per client, each with room for the prompt and the answer."""
    return lambda port, clients: [
        options.llama_server, "-m",
        str(options.model), "--host", HOST, "--port",
        str(port), "-np",
        str(clients), "-c",
        str(clients * options.slot_context), "-t",
        str(options.threads), "--no-webui", *choice
    ]


def best_choice(options, clients, folder):
    if len(options.llama_choices) == 1:
        return options.llama_choices[0]
    speeds = []
    for choice in options.llama_choices:
        sample = measure(options, llama_command(options, choice), clients, folder)
        speeds.append((sample.tokens_per_s, choice))
        print(f"  llama-server {' '.join(choice)}: {sample.tokens_per_s:.1f} tok/s", flush=True)
    return max(speeds)[1]


def machine_line():
    text = subprocess.run(["lscpu"],
                          capture_output=True,
                          text=True,
                          check=True,
                          env={
                              **os.environ, "LC_ALL": "C"
                          }).stdout
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    flags = set(fields.get("Flags", "").split())
    known = [("amx_int8", "AMX"), ("avx512_vnni", "AVX-512 VNNI"), ("avx_vnni", "AVX VNNI"),
             ("avx512f", "AVX-512"), ("avx2", "AVX2")]
    classes = [name for flag, name in known if flag in flags]
    return f"{fields['Model name'].strip()}, {fields['CPU(s)'].strip()} CPUs, {', '.join(classes) or 'no AVX2'}"


def revision(folder):

    def git(*arguments):
        return subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True,
                              check=False).stdout.strip()

    return (git("rev-parse", "--short=12", "HEAD") or
            "unknown") + (" with changes" if git("status", "--porcelain", "-uno") else "")


def llama_version(path):
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("version")]
    return lines[0] if lines else "version unknown"


def compare(options, clients, folder):
    """Ratios of all rounds at one number of clients."""
    choice = best_choice(options, clients, folder)
    commands = {"troupe": troupe_command(options), "llama": llama_command(options, choice)}
    samples = {"troupe": [], "llama": []}
    for round_number in range(options.rounds):
        order = ["troupe", "llama"] if round_number % 2 == 0 else ["llama", "troupe"]
        for name in order:
            samples[name].append(measure(options, commands[name], clients, folder))
        ours, theirs = samples["troupe"][-1], samples["llama"][-1]
        print(
            f"  round {round_number + 1}: troupe {ours.tokens_per_s:.1f}, llama-server {theirs.tokens_per_s:.1f} tok/s, "
            f"ratio {ours.tokens_per_s / theirs.tokens_per_s:.3f}, stolen {max(ours.stolen, theirs.stolen):.1%}",
            flush=True)
    logs = [math.log(a.tokens_per_s / b.tokens_per_s) for a, b in zip(samples["troupe"], samples["llama"])]
    middle = statistics.median(logs)
    result = {
        "clients": clients,
        "llama_args": choice,
        "ratio": math.exp(middle),
        "ratio_lowest": math.exp(min(logs)),
        "ratio_highest": math.exp(max(logs)),
        "ratio_mad": statistics.median(abs(value - middle) for value in logs),
        "samples": {
            name: [dataclasses.asdict(sample) for sample in runs]
            for name, runs in samples.items()
        },
    }
    for name, runs in samples.items():
        tokens = sum(sample.report["tokens"] for sample in runs)
        result[name] = {
            "tokens_per_s": statistics.median(sample.tokens_per_s for sample in runs),
            "cpu_s_per_1000_tokens": 1000 * sum(sample.cpu_s for sample in runs) / tokens,
            "resident_mib": max(sample.resident_mib for sample in runs),
        }
    return result


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--troupe", required=True)
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--text", type=pathlib.Path, required=True, help="prompts are cut from it")
    parser.add_argument("--warm-up-text",
                        type=pathlib.Path,
                        help="default: a reversed copy of --text, so that no "
                        "prefix cache knows the measured prompts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--require",
                        nargs="+",
                        default=["16:1.0", "1:0.5"],
                        metavar="CLIENTS:RATIO",
                        help="numbers of clients to measure, each with the least ratio that passes")
    parser.add_argument("--requests",
                        type=int,
                        default=8,
                        help="per measurement, and at least two for each client")
    parser.add_argument("--prompt-words", type=int, default=90)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--slot-context",
                        type=int,
                        default=512,
                        help="tokens of context of each llama-server slot")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of llama-server")
    parser.add_argument("--llama-args", help="one choice of llama-server options instead of trying several")
    parser.add_argument("--troupe-args", default="", help="further options of troupe serve")
    parser.add_argument("--json", type=pathlib.Path, help="write all samples to this file")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    options.troupe_args = options.troupe_args.split()
    options.llama_choices = LLAMA_CHOICES if options.llama_args is None else [options.llama_args.split()]
    try:
        options.require = [(int(clients), float(ratio))
                           for clients, ratio in (item.split(":") for item in options.require)]
    except ValueError:
        parser.error("--require takes CLIENTS:RATIO, for example 16:1.0")
    return options


def main():
    options = parse(sys.argv[1:])
    print(f"machine: {machine_line()}")
    print(
        f"troupe: {revision(pathlib.Path(__file__).resolve().parent)}; llama-server: {llama_version(options.llama_server)}"
    )
    print(
        f"model: {options.model.name}; {options.prompt_words} words in, {options.max_tokens} tokens out, greedy",
        flush=True)
    results = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="compare_servers.") as folder:
        if options.warm_up_text is None:
            options.warm_up_text = pathlib.Path(folder) / "warm_up.txt"
            words = options.text.read_text(encoding="utf-8", errors="replace").split()
            options.warm_up_text.write_text(" ".join(reversed(words)), encoding="utf-8")
        for clients, least in options.require:
            print(f"{clients} client{'s' if clients > 1 else ''}:", flush=True)
            result = compare(options, clients, folder)
            results.append(result)
            passed = result["ratio"] >= least
            failed = failed or not passed
            for name in ("troupe", "llama"):
                row = result[name]
                print(
                    f"  {name}: {row['tokens_per_s']:.1f} tok/s, {row['cpu_s_per_1000_tokens']:.2f} CPU s per 1,000 tokens, "
                    f"{row['resident_mib']:.0f} MiB")
            print(
                f"  ratio: median {result['ratio']:.3f}, range {result['ratio_lowest']:.3f}-{result['ratio_highest']:.3f}, "
                f"MAD {result['ratio_mad']:.1%}; needed {least}: {'passed' if passed else 'FAILED'}",
                flush=True)
    if options.json:
        options.json.write_text(
            json.dumps({
                "machine": machine_line(),
                "model": options.model.name,
                "results": results
            }, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, OSError) as problem:
        print(f"compare_servers: {problem}", file=sys.stderr)
        sys.exit(2)
