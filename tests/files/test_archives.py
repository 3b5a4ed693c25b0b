"""NumPy archives that are damaged, or made to do harm."""

import io
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ntk_deq.files.archives import ArchiveError, open_archive, write_archive


def npy(header: str, payload: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("latin-1")
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + payload


def plain(descr: str = "<f8", shape: str = "(1,)", order: str = "False") -> str:
    return f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n"


def packed(path: Path, content: bytes, method: int = zipfile.ZIP_STORED, name: str = "A.npy") -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, content)
    return path


def read(path: Path, name: str = "A", most: int = 10**6) -> np.ndarray:
    with open_archive(path) as archive:
        return archive.array(name, most=most)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(6, dtype=">i2"),
        np.array(3.5),
        np.zeros((0, 4)),
        np.array([True, False]),
        np.arange(3, dtype=np.complex64),
        np.array(["ab", "c"]),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read(tmp_path, array, save):
    save(tmp_path / "a.npz", A=array)
    found = read(tmp_path / "a.npz")
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.flags.writeable or not found.size


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("header", [
    "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}",
    "{'shape': (2), 'fortran_order':False,'descr':'<f8'}   \n",
    "  { 'fortran_order': True , 'descr' : '<f8', 'shape' : ( 1, 2 ) , }\n",
])  # fmt: skip
def test_headers_of_other_writers(tmp_path, header, version):
    path = packed(tmp_path / "a.npz", npy(header, np.array([1.0, 2.0]).tobytes(), version))
    assert read(path).ravel().tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("{" * 4000, "header of array 'A' is damaged"),
        ("[" * 4000, "header of array 'A' is damaged"),
        (plain(shape="(True,)"), "header of array 'A' is damaged"),
        (plain(shape="(1.0,)"), "header of array 'A' is damaged"),
        (plain(shape="(-1,)"), "header of array 'A' is damaged"),
        (plain(shape="(1,,1)"), "gives no shape"),
        (plain(shape="(" + "1," * 40 + ")"), "gives no shape"),
        (plain(shape="(" + "9" * 30 + ",)"), "gives no shape"),
        (plain(shape="(9999999999,9999999999)"), r"promises shape .* Found 8"),
        (plain(order="1"), "header of array 'A' is damaged"),
        (plain(descr="<f3"), "damaged or of a kind"),
        (plain(descr="|V99999999999"), "header of array 'A' is damaged|damaged or of a kind"),
        (plain(descr="|O"), "Python objects, which are never opened"),
        (plain() + "x", "header of array 'A' is damaged"),
        (plain().replace("descr", "shape"), "header of array 'A' is damaged"),
        ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}", "or that of no array of numbers"),
        ("__import__('os').system('touch ran')", "header of array 'A' is damaged"),
        ("", "header of array 'A' is damaged"),
        ("\0" * 100, "header of array 'A' is damaged"),
    ],
)
def test_a_header_is_matched_and_not_evaluated(tmp_path, header, words):
    with pytest.raises(ArchiveError, match=words):
        read(packed(tmp_path / "a.npz", npy(header, bytes(8))))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not in NumPy's format"),
        (b"\x93NUMPY", "unknown version"),
        (b"\x93NUMPY\x09\x00" + bytes(90), "unknown version"),
        (b"\x93NUMPY\x01\x00", "damaged or of a kind"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a header of 4294967295 bytes"),
        (npy(plain(), bytes(7)), r"promises shape \(1,\), 8 bytes. Found 7"),
        (npy(plain(), bytes(9)), r"promises shape \(1,\), 8 bytes. Found 9"),
    ],
)
def test_damaged_members(tmp_path, content, words):
    with pytest.raises(ArchiveError, match=words):
        read(packed(tmp_path / "a.npz", content))


def test_two_members_of_one_name(tmp_path):
    path = packed(tmp_path / "a.npz", npy(plain(), bytes(8)))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("A", b"another")
    with pytest.raises(ArchiveError, match="two arrays of the name 'A'"):
        read(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_not_opened(tmp_path, method):
    with pytest.raises(ArchiveError, match="compressed in a way that NumPy does not use"):
        read(packed(tmp_path / "a.npz", npy(plain(), bytes(8)), method))


def test_sizes_and_names(tmp_path):
    path = packed(tmp_path / "a.npz", npy(plain(), bytes(8)))
    with pytest.raises(ArchiveError, match="takes 8 bytes; at most 7"):
        read(path, most=7)
    with pytest.raises(ArchiveError, match="there is no array 'B'"):
        read(path, "B")


def test_every_bit_of_a_small_archive(tmp_path):
    """Each flipped bit is noticed, or leaves the numbers as they were."""
    whole = io.BytesIO()
    np.savez(whole, A=np.array([1.0, 2.0]))
    content = whole.getvalue()
    path = tmp_path / "a.npz"
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            found = read(path)
        except ArchiveError:
            continue
        assert found.tolist() == [1.0, 2.0], place


def test_every_length_of_a_small_archive(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, A=np.array([1.0, 2.0]))
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ArchiveError):
            read(path)
    shutil.rmtree(tmp_path)


class TestWritten:
    """What is written is what NumPy would write, whatever the arrays are called."""

    def test_byte_for_byte(self):
        arrays = {"A": np.arange(6.0).reshape(2, 3), "n": np.array(3), "empty": np.zeros((0, 2))}
        ours, theirs = io.BytesIO(), io.BytesIO()
        write_archive(ours, arrays)
        np.savez(theirs, **arrays)
        assert ours.getvalue() == theirs.getvalue()

    @pytest.mark.parametrize("name", ["file", "args", "kwds", "allow_pickle", "self"])
    def test_names_that_mean_something_to_numpy(self, tmp_path, name):
        path = tmp_path / "a.npz"
        with path.open("wb") as stream:
            write_archive(stream, {name: np.ones(2)}, comment=b"ours")
        with open_archive(path) as archive:
            assert list(archive.members) == [name]
            assert archive.array(name, most=16).tolist() == [1.0, 1.0]
        with zipfile.ZipFile(path) as opened:
            assert opened.comment == b"ours"

    def test_objects_are_not_pickled(self):
        with pytest.raises(ValueError, match="Object arrays cannot be saved"):
            write_archive(io.BytesIO(), {"a": np.array([{}], dtype=object)})
