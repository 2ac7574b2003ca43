# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/arch/: a tiny random model per architecture, with the logits that transformers gives for it.

make_models.py [NAME ...]            writes all or the named models, without model.gguf
make_models.py --check [NAME ...]    compares the committed logits with fresh ones (to 1e-4), and the features again

Fails unless every feature of architectures.py moves some logit by more than 1e-2. README.md describes the files.
"""
import argparse
import contextlib
import copy
import json
import pathlib
import sys
import tempfile
import zlib

import numpy as np
import safetensors.torch
import torch
import transformers

from architectures import MODELS, VOCABULARY, lower_index_wins

ARCH = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "arch"
LEAST_EFFECT = 1e-2
CHECK_TOLERANCE = 1e-4
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

# Standard deviation of a weight times the square root of its row length; the first part found in the name counts.
GAINS = {"q_proj.": 1.7, "k_proj.": 1.7, "qkv_proj.": 1.6, "v_proj.": 1.3, "o_proj.": 1.3, "lm_head.": 3.0,
         "": 1.5}  # yapf: disable


class Fault(Exception):
    """What this run cannot go on from, for one model."""


def quiet():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)


def seed_of(name):
    return zlib.crc32(name.removesuffix("_f16").removesuffix("_bf16").encode())


def drawn(name, parameter, model, spec, generator):
    values = torch.randn(parameter.shape, generator=generator)
    if name.endswith("bias"):
        return 0.5 * values
    if "norm" in name:
        plus_one = spec.config["model_type"].startswith("gemma")
        center = (0.6 if plus_one else 1.5) if ("q_norm" in name or "k_norm" in name) else (0.0 if plus_one else 1.0)
        return center + 0.25 * values
    if "embed_tokens" in name:
        return values * (0.4 if spec.config["tie_word_embeddings"] else 1.0)
    gain = next(gain for part, gain in {**spec.gains, **GAINS}.items() if part in name)
    return gain * values / parameter.shape[-1]**0.5


def new_model(name, spec):
    config = transformers.AutoConfig.for_model(**copy.deepcopy(spec.config))  # it writes into nested values
    model = transformers.AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(seed_of(name))
    with torch.no_grad():
        for parameter_name, parameter in sorted(model.named_parameters()):
            parameter.copy_(drawn(parameter_name, parameter, model, spec, generator))
        if spec.finish:
            spec.finish(model)
    return model


def token_ids(name, length):
    rng = np.random.default_rng([seed_of(name), length])
    return [int(i) for i in rng.integers(3, VOCABULARY, length)]


def checkpoint_tensors(model, dtype):
    """The weights under the names a published checkpoint has."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = safetensors.torch.load_file(pathlib.Path(folder) / "model.safetensors")
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    return {name: tensors[name].to(TYPES[dtype]).contiguous() for name in sorted(tensors)}, config


def write_weights(folder, tensors, shards):
    if shards == 1:
        safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    step = -(-len(names) // shards)
    places, size = {}, 0
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard * step:(shard + 1) * step]}
        safetensors.torch.save_file(part, folder / file, metadata={"format": "pt"})
        places.update(dict.fromkeys(part, file))
        size += sum(tensor.nbytes for tensor in part.values())
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_folder(folder, name, spec):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    tensors, new_style = checkpoint_tensors(new_model(name, spec), spec.dtype)
    write_weights(folder, tensors, spec.shards)
    write_json(folder / "config.json", spec.config)
    for key in ("transformers_version", "_name_or_path"):
        new_style.pop(key, None)
    new_style["dtype"] = spec.dtype
    write_json(folder / "config_v5.json", new_style)
    write_json(folder / "generation_config.json", {
        key: spec.config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in spec.config
    })  # yapf: disable


def load(folder, config):
    """The model of the folder's weights under another config; all arithmetic in FP32."""
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        for file in folder.glob("model*.safetensors*"):
            (place / file.name).symlink_to(file.resolve())
        write_json(place / "config.json", config)
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            place, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if report["missing_keys"] or report["mismatched_keys"]:
        raise Fault(f"{folder.name}: {report}")
    return model.eval()


@torch.no_grad()
def logits_of(model, sequences, patch=None):
    with (patch or lower_index_wins)(model):
        return [
            model(torch.tensor([ids]), use_cache=False).logits[0].to(torch.float32).numpy() for ids in sequences
        ]


def largest_move(before, after):
    return max(float(np.abs(a - b).max()) for a, b in zip(before, after))


def first_move(before, after):
    """The first position at which a logit differs by more than LEAST_EFFECT."""
    places = [np.flatnonzero(np.abs(a - b).max(axis=1) > LEAST_EFFECT) for a, b in zip(before, after)]
    return min((int(place[0]) for place in places if len(place)), default=None)


def feature_effects(folder, spec, sequences, logits):
    effects = {}
    for name, feature in spec.features.items():
        config = json.loads((folder / "config.json").read_text())
        model = load(folder, feature.config(config) if feature.config else config)
        if feature.model:
            with torch.no_grad():
                feature.model(model)
        moved = logits_of(model, sequences, feature.patch)
        effects[name] = {"moves": round(largest_move(logits, moved), 4), "from_position": first_move(logits, moved)}
    return effects


def routing(model, sequences):
    """Per MoE layer: the experts of each token of the first sequence, and how ties and unused experts fell out."""
    records = []

    def watch(module, inputs, outputs):
        records.append([output.detach() for output in outputs])

    gates = [(name, module) for name, module in model.named_modules() if name.endswith("mlp.gate")]
    with contextlib.ExitStack() as stack:
        for _, gate in gates:
            stack.callback(gate.register_forward_hook(watch).remove)
        logits_of(model, sequences[:1])
    layers = {}
    for (name, gate), (logits, _, experts) in zip(gates, records):
        ordered = torch.sort(logits, dim=-1, descending=True).values
        chosen = [sorted(row) for row in experts.tolist()]
        used = {expert for row in chosen for expert in row}
        border = ordered[:, gate.top_k - 1] == ordered[:, gate.top_k]
        inside = (ordered[:, 1:gate.top_k] == ordered[:, :gate.top_k - 1]).any(-1)
        lead = (ordered[:, gate.top_k - 1] - ordered[:, gate.top_k])[~border].min()
        layers[name.split(".")[2]] = {
            "experts": chosen,
            "never_chosen": sorted(set(range(logits.shape[-1])) - used),
            "ties_at_the_border": int(border.sum()),
            "ties_among_the_chosen": int(inside.sum()),
            "least_lead_without_tie": round(float(lead), 6),
        }
        if not border.any() or not inside.any() or not layers[name.split(".")[2]]["never_chosen"]:
            raise Fault(f"{name}: lacks a tie at the border, a tie among the chosen or an unused expert: "
                             f"{layers[name.split('.')[2]]}")
        if lead < 2e-4:
            raise Fault(f"{name}: a choice of experts hangs on a lead of {lead}")
    return layers


def compute(folder, name, spec):
    """(expected.json without the routing's rows, file name -> logits)"""
    sequences = [token_ids(name, length) for length in spec.lengths]
    model = load(folder, spec.config)
    logits = logits_of(model, sequences)
    newer = logits_of(load(folder, json.loads((folder / "config_v5.json").read_text())), sequences)
    if largest_move(logits, newer) > 0:
        raise Fault("config.json and config_v5.json give different logits")
    files, entries, gguf_entries = {}, [], []
    as_gguf = logits_of(load(folder, {**spec.config, **spec.gguf_config}), sequences)
    for i, ids in enumerate(sequences):
        suffix = "" if i == 0 else f"_{len(ids)}"
        files[f"logits{suffix}.f32"] = logits[i]
        entries.append({"ids": ids, "logits": f"logits{suffix}.f32"})
        if spec.gguf_config:
            files[f"logits_gguf{suffix}.f32"] = as_gguf[i]
        gguf_entries.append({"ids": ids, "logits": f"logits{'_gguf' if spec.gguf_config else ''}{suffix}.f32"})
    expected = {"vocabulary": VOCABULARY, "huggingface": entries}
    if spec.gguf:
        expected["gguf"] = gguf_entries
    if spec.gguf_config:
        expected["gguf_note"] = spec.gguf_note
    expected["logits_deviation"] = round(float(logits[0].std()), 3)
    if "qwen3_moe" in name or "mixtral" in name:
        expected["routing"] = routing(model, sequences)
    expected["features"] = feature_effects(folder, spec, sequences, logits)
    return expected, files


def compact_json(value):
    """One line per entry of the upper two levels."""
    lines = []
    for key, item in value.items():
        if isinstance(item, dict):
            inner = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in item.items())
            lines.append(f"  {json.dumps(key)}: {{\n{inner}\n  }}" if inner else f"  {json.dumps(key)}: {{}}")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(item)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def report(name, expected):
    """Prints the table of one model; returns the features without effect."""
    print(f"{name}: logits of deviation {expected['logits_deviation']}")
    weak = []
    for feature, effect in expected["features"].items():
        ok = effect["moves"] > LEAST_EFFECT
        weak += [] if ok else [f"{name}: {feature}"]
        remark = "" if ok else "  TOO LITTLE"
        print(f"  {feature:44} {effect['moves']:9.4f}  from position {effect['from_position']}{remark}")
    for layer, facts in expected.get("routing", {}).items():
        print(f"  layer {layer}: " + ", ".join(f"{key} {value}" for key, value in facts.items() if key != "experts"))
    return weak


def differing(folder, files):
    worst = 0.0
    for file, logits in files.items():
        committed = np.fromfile(folder / file, "<f4").reshape(logits.shape)
        worst = max(worst, float(np.abs(committed - logits).max()))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *MODELS], metavar="NAME")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    quiet()
    faults = []
    for name in arguments.names or MODELS:
        spec, folder = MODELS[name], ARCH / name
        if not arguments.check:
            write_folder(folder, name, spec)
        try:
            expected, files = compute(folder, name, spec)
        except Fault as fault:
            faults.append(f"{name}: {fault}")
            continue
        faults += report(name, expected)
        if arguments.check:
            worst = differing(folder, files)
            print(f"  committed logits differ by {worst:.2g}")
            faults += [f"{name}: logits differ"] if worst > CHECK_TOLERANCE else []
            continue
        for old in folder.glob("*.f32"):
            old.unlink()
        for file, logits in files.items():
            logits.astype("<f4").tofile(folder / file)
        (folder / "expected.json").write_text(compact_json(expected))
    for fault in faults:
        print("FAILED", fault)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
