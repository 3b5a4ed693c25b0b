"""A claim whose data file is damaged stays undecided and says why; it is no internal error, and the others go on."""

from __future__ import annotations

import io
import json
import os
import zipfile

import numpy as np
import pytest
from command_line_harness import call, suite

HEAD = """suite: test
settings:
  plain: {sizes: {n: 1..2}, domain: {A: "real[n, n]"}}
  digits:
    model: linear-implicit
    sizes: {N: 4, d: 9, m: 2}
    images: {source: npz, images: data.npz}
    init: {W: 0.1*identity, U: "normal(0, 1)", b: ones}
claims:
"""
CLAIMS = ("id: data, setting: digits, conclude: fro(Z) >= 0", "id: good, setting: plain, conclude: norm(A) <= fro(A)")


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


IMAGES, LABELS = npy(np.arange(36, dtype=np.uint8).reshape(4, 3, 3)), npy(np.array([0, 1, 0, 1]))


def packed(path, *members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)


def lzma(path):
    packed(path, ("X.npy", IMAGES), ("y.npy", LABELS), method=zipfile.ZIP_LZMA)
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(content)


def brackets(path):
    header = b"(" * 1000 + b"\n"
    packed(path, ("X.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header), ("y.npy", LABELS))


def truth(path):
    packed(path, ("X.npy", IMAGES.replace(b"(4, 3, 3)", b"(True,36)")), ("y.npy", LABELS))


def twice(path):
    packed(path, ("X.npy", IMAGES), ("X", b"another"), ("y.npy", LABELS))


def cut(path):
    packed(path, ("X.npy", IMAGES), ("y.npy", LABELS))
    path.write_bytes(path.read_bytes()[:-20])


DAMAGE = {
    "another compression": lzma,
    "nested brackets": brackets,
    "a truth value in a shape": truth,
    "two arrays of one name": twice,
    "cut": cut,
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "missing": lambda path: None,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_claim_is_undecided_and_the_others_are_judged(capsys, tmp_path, damage):
    DAMAGE[damage](tmp_path / "data.npz")
    options = ["--instances", "2", "--search", "0", "--no-store", "--out", tmp_path / "out"]
    ran = call(capsys, "run", suite(tmp_path, *CLAIMS, head=HEAD), "--data", "/dev", *options)
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [(line["id"], line["verdict"]) for line in lines] == [("data", "undecided"), ("good", "holds")]
    assert "its data cannot be had: " in lines[0]["reason"]
    assert "data.npz" in lines[0]["reason"] or damage == "a device"
    assert not lines[0]["trace"]
    assert ran.code == 6
