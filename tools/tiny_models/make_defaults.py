# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/hf_defaults.json: what each model's class in transformers takes for a key that config.json leaves out.

make_defaults.py            writes the file
make_defaults.py --check    compares it with what the installed transformers says
"""
import argparse
import dataclasses
import json
import pathlib
import sys

import transformers

from architectures import MODELS

FILE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "hf_defaults.json"


def plain(value):
    return value if isinstance(value, (bool, int, float, str, list, type(None))) else None


def defaults_of(config_class):
    fields = {}
    for field in dataclasses.fields(config_class):
        if field.default is not dataclasses.MISSING and not field.name.startswith("_"):
            fields[field.name] = plain(field.default)
    # Spelled as published files spell them; transformers 5 has them in rope_parameters.
    fields.pop("rope_parameters")
    theta = config_class.default_theta
    if isinstance(theta, dict):
        fields["rope_theta"], fields["rope_local_base_freq"] = theta["global"], theta["local"]
    else:
        fields["rope_theta"] = theta
    fields["rope_scaling"] = None
    fields["partial_rotary_factor"] = 1.0
    if config_class.model_type == "gemma3_text":
        fields["sliding_window_pattern"] = 6  # read in __post_init__, no field
    return fields


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    classes = {}
    for spec in MODELS.values():
        config = transformers.AutoConfig.for_model(spec.config["model_type"])
        classes[spec.config["architectures"][0]] = defaults_of(type(config))
    text = json.dumps({name: classes[name] for name in sorted(classes)}, indent=1, sort_keys=True) + "\n"
    if arguments.check:
        return text != FILE.read_text()
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
