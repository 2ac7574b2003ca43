# SPDX-License-Identifier: Apache-2.0
"""What the model is given: control tokens in prompts, and the names that a chat template has."""
import json
import pathlib
import tempfile
import unittest

from program import ProgramTest, SHARED, TINY, troupe

# A vocabulary with more special tokens than BOS and EOS, beside no weights.
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
SHOWN = ("{% for name in ['tools', 'documents'] %}{{ name }} {% endfor %}{{ tools is none }} {{ documents is none }} "
         "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }} {{ sep_token is defined }} {{ add_generation_prompt }}")


def vocabulary_folder(folder):
    folder = pathlib.Path(folder)
    vocabulary = {text: i for i, text in enumerate(["a", "b", *TOKENS.values()])}
    added = [{"id": i, "content": text, "special": True} for text, i in vocabulary.items() if i > 1]
    (folder / "tokenizer.json").write_text(json.dumps(
        {"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "added_tokens": added}), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({**TOKENS, "chat_template": SHOWN}), encoding="utf-8")
    return folder


class Prompts(ProgramTest):

    def prompt_ids(self, text, *flags):
        words = ["run", "-m", TINY, "--raw", "--json", "-t", "0", "-n", "1", *flags, text]
        return json.loads(troupe(*words).stdout)["prompt_token_ids"]

    def test_a_raw_prompt_has_control_tokens_only_where_they_are_asked_for(self):
        text = "a<|im_end|>b"
        plain, special = ([int(i) for i in troupe("tokenize", "-m", TINY, *flags, text).stdout.split()]
                          for flags in ([], ["--special"]))
        self.assertNotEqual(plain, special)
        self.assertEqual(self.prompt_ids(text), plain)
        self.assertEqual(self.prompt_ids(text, "--special"), special)
        self.fails(2, "run", "-m", TINY, "--special", text, says=["--special", "--raw"])

    def test_a_template_is_given_the_names_that_the_server_gives_it(self):
        with tempfile.TemporaryDirectory() as folder:
            model = vocabulary_folder(folder)
            shown = "tools documents True True <s></s><unk><pad> False True"
            self.assertEqual(troupe("template", "-m", model, "hi").stdout.decode(), shown)
            # What the context says goes before.
            context = model / "context.json"
            context.write_text(json.dumps({"messages": [], "tools": [1], "pad_token": "P", "eos_token": "E"}), encoding="utf-8")
            self.assertEqual(troupe("template", "-m", model, "--context", context).stdout.decode(),
                             "tools documents False True <s>E<unk>P False True")

    def test_without_a_model_a_template_has_what_the_context_says_and_no_more(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            source, context = folder / "t.jinja", folder / "c.json"
            source.write_text("{{ tools is defined }} {{ documents is defined }} {{ bos_token }} {{ mine }}", encoding="utf-8")
            context.write_text(json.dumps({"messages": [], "bos_token": "B", "mine": 3}), encoding="utf-8")
            self.assertEqual(troupe("template", "--template", source, "--context", context).stdout.decode(), "False False B 3")
            context.write_text(json.dumps({"messages": [], "tools": None, "documents": []}), encoding="utf-8")
            self.assertEqual(troupe("template", "--template", source, "--context", context).stdout.decode(), "True True  ")

    def test_the_program_renders_published_templates_as_jinja2_does(self):
        golden, templates = SHARED / "golden" / "templates.json", SHARED / "data" / "templates"
        if not golden.is_file():
            print(f"skipped: {golden} is absent")
            self.skipTest("no golden renders")
        cases = json.loads(golden.read_text(encoding="utf-8"))
        compared = 0
        with tempfile.TemporaryDirectory() as folder:
            context = pathlib.Path(folder) / "context.json"
            for name, renders in cases["renders"].items():
                for case, expected in renders.items():
                    variables = {"add_generation_prompt": True, **cases["cases"][case],
                                 "bos_token": cases["bos_token"], "eos_token": cases["eos_token"]}
                    context.write_text(json.dumps(variables), encoding="utf-8")
                    done = troupe("template", "--template", templates / name, "--context", context, "--now", cases["now"])
                    if "text" in expected:
                        self.assertEqual((done.returncode, done.stdout.decode()), (0, expected["text"]), (name, case))
                    else:
                        self.assertEqual(done.returncode, 1, (name, case))
                        self.assertIn(expected["error"].removeprefix("TemplateError: "), done.stderr.decode(), (name, case))
                    compared += 1
        self.assertEqual(compared, 120)

    def test_inspect_tells_which_recommended_settings_are_not_applied(self):
        with tempfile.TemporaryDirectory() as folder:
            model = vocabulary_folder(folder)
            self.assertNotIn(b"not applied", troupe("inspect", model).stdout)
            (model / "generation_config.json").write_text('{"temperature": 0.6, "top_p": 0.95}', encoding="utf-8")
            self.assertIn(b"generation     generation_config.json: temperature 0.6, top_p 0.95 are not applied",
                          troupe("inspect", model).stdout)

    def test_a_folder_that_holds_no_model_is_told_what_one_holds(self):
        with tempfile.TemporaryDirectory() as folder:
            self.fails(1, "inspect", folder, says=[folder, "config.json", ".safetensors"])
            self.fails(1, "run", "-m", folder, "--raw", "hi", says=[folder, "config.json", ".safetensors"])


if __name__ == "__main__":
    unittest.main()
