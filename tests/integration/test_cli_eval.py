# SPDX-License-Identifier: Apache-2.0
"""`troupe eval perplexity` on the tiny model against the numbers of an independent program in FP64."""
import json
import math
import unittest

from program import ProgramTest, TINY, troupe

TEXT = TINY.parent / "held_out.txt"
EXPECTED = json.loads(TINY.with_suffix(".json").read_text("utf-8"))["perplexity"]
CHUNKS = len(EXPECTED["nll_per_chunk"])


class Perplexity(ProgramTest):

    def measure(self, *arguments):
        done = troupe("eval", "perplexity", "-m", TINY, "-f", TEXT, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr.decode()

    def test_it_is_the_one_of_the_independent_program(self):
        # The share of it that may differ is that of the numeric tests: rounding of keys, values and sums.
        for flags, share in ((["--reference"], 1e-4), ([], 0.01)):
            with self.subTest(flags=flags):
                got, remarks = self.measure(*flags)
                self.assertEqual((got["context"], got["tokens"], remarks), (EXPECTED["ctx"], EXPECTED["tokens"], ""))
                self.assertAlmostEqual(got["perplexity"] / EXPECTED["ppl"], 1, delta=share)
                self.assertEqual(len(got["chunk_nll"]), CHUNKS)
                for one, expected in zip(got["chunk_nll"], EXPECTED["nll_per_chunk"]):
                    self.assertAlmostEqual(one / expected, 1, delta=4 * share)
                self.assertAlmostEqual(math.exp(sum(got["chunk_nll"]) / got["tokens"]), got["perplexity"], places=9)
                self.assertGreater(got["standard_error"], 0)

    def test_fewer_chunks_are_the_first_ones(self):
        whole, _ = self.measure("--reference")
        some, remarks = self.measure("--reference", "--chunks", "3")
        self.assertEqual((some["chunk_nll"], some["tokens"], remarks), (whole["chunk_nll"][:3], 3 * 255, ""))

    def test_a_shorter_context_makes_shorter_chunks(self):
        got, _ = self.measure("--ctx", "64", "--chunks", "5")
        self.assertEqual((got["context"], len(got["chunk_nll"]), got["tokens"]), (64, 5, 5 * 31))

    def test_more_chunks_than_the_text_has_are_remarked_on(self):
        got, remarks = self.measure("--chunks", "100000")
        self.assertEqual(len(got["chunk_nll"]), CHUNKS)
        self.assertEqual(len(remarks.splitlines()), 1, remarks)
        for part in (f"{CHUNKS} whole chunks of 512", "--chunks 100000"):
            self.assertIn(part, remarks)

    def test_a_person_reads_one_line_of_numbers(self):
        done = troupe("eval", "perplexity", "-m", TINY, "-f", TEXT, "--reference")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertRegex(done.stdout.decode(), rf"^perplexity {EXPECTED['ppl']:.4f} \+- 0\.\d+ over "
                                               rf"{EXPECTED['tokens']} tokens of {CHUNKS} chunks\n\S")

    def test_a_text_of_less_than_a_chunk_says_how_long_it_is(self):
        self.fails(1, "eval", "perplexity", "-m", TINY, "-f", TINY.parents[1] / "arch" / "llama" / "config.json",
                   says=["at least one chunk of 512", "the text has "])


if __name__ == "__main__":
    unittest.main()
