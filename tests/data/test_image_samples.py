import numpy as np
import pytest
import torch

from ntk_deq.data import load_images, resize_area, select_images
from ntk_deq.data.readers import checked_image_set
from ntk_deq.data.samples import distance_to_unit_rows
from ntk_deq.errors import ArgumentError, DataError

EPS = torch.finfo(torch.float64).eps


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(count: int, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Images whose first pixel tells their place in the file."""
    images = np.zeros((count, 2, 2), dtype=np.uint8)
    images[:, 0, 0] = np.arange(count)
    images[:, 1, 1] = 255
    return images, np.arange(count) % classes


def places(sample) -> list[int]:
    return [round(255 * value) for value in sample.X[:, 0].tolist()]


def test_digits():
    digits = load_images("mnist")
    sample = select_images(digits.images, digits.labels, count=10, generator=seeded())
    assert sample.X.shape == (10, 784)
    assert sample.X.dtype == sample.y.dtype == torch.float64
    assert sample.y.tolist() == [-1.0] * 5 + [1.0] * 5
    torch.testing.assert_close(sample.X.norm(dim=1), torch.ones(10, dtype=torch.float64), rtol=8 * EPS, atol=0)
    assert sample.X.min() == 0
    again = select_images(digits.images, digits.labels, count=10, generator=seeded())
    assert torch.equal(again.X, sample.X)
    assert not torch.equal(select_images(digits.images, digits.labels, count=10, generator=seeded(1)).X, sample.X)


def test_how_far_images_are_from_what_they_are_to_be():
    digits = load_images("mnist")
    unit = select_images(digits.images, digits.labels, count=10, side=8, generator=seeded())
    assert 0 < unit.radius == distance_to_unit_rows(unit.X) < 8 * EPS
    for side in (None, 8):
        plain = select_images(digits.images, digits.labels, count=10, side=side, unit_norm=False, generator=seeded())
        assert plain.radius == 0
    white, labels = np.full((4, 28, 28), 255, dtype=np.uint8), np.array([0, 0, 1, 1])
    for side in range(1, 28):
        options = {"count": 2, "side": side, "unit_norm": False}
        sample = select_images(white, labels, **options, generator=seeded())
        above = float((sample.X - 1).norm())  # means of ones that are not one
        assert above <= sample.radius <= above * (1 + 1e-12) < 1e-14


def test_each_row_is_an_image_of_its_class_scaled():
    digits = load_images("mnist")
    sample = select_images(digits.images, digits.labels, classes=(7, 3), count=6, unit_norm=False, generator=seeded())
    stored = digits.images.reshape(5000, -1) / 255.0
    for row, target in zip(sample.X.numpy(), sample.y.tolist(), strict=True):
        found = np.flatnonzero((stored == row).all(axis=1))
        assert digits.labels[found].tolist() == [7 if target == -1.0 else 3]


def test_targets_and_even_spread():
    images, labels = numbered(60, classes=3)
    sample = select_images(images, labels, classes=(2, 0, 1), count=8, unit_norm=False, generator=seeded())
    assert sample.y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert [place % 3 for place in places(sample)] == [2, 2, 2, 0, 0, 0, 1, 1]
    one = select_images(images, labels, classes=(1,), count=2, unit_norm=False, generator=seeded())
    assert one.y.tolist() == [0, 0]
    assert select_images(images, labels, count=1, generator=seeded()).y.tolist() == [-1.0]


def test_train_and_test_are_disjoint_and_without_replacement():
    images, labels = numbered(20)
    train = select_images(images, labels, count=16, unit_norm=False, generator=seeded(1))
    test = select_images(images, labels, count=4, unit_norm=False, split="test", generator=seeded(2))
    assert sorted(places(train)) == list(range(16))
    assert sorted(places(test)) == [16, 17, 18, 19]
    with pytest.raises(DataError, match=r"9 images of class 0 .* the train part has 8 of the 10"):
        select_images(images, labels, count=17, generator=seeded())
    with pytest.raises(DataError, match=r"class 5 .* has 0 of the 0"):
        select_images(images, labels, classes=(5,), count=1, generator=seeded())


def test_grayscale_is_luma_in_either_layout():
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 256, size=(10, 4, 5, 3)).astype(np.uint8)
    labels = np.zeros(10, dtype=int)
    expected = (0.299 * colour[..., 0] + 0.587 * colour[..., 1] + 0.114 * colour[..., 2]).reshape(10, -1) / 255
    options = {"classes": (0,), "count": 8, "unit_norm": False}
    last = select_images(colour, labels, **options, generator=seeded()).X.numpy()
    first = select_images(np.moveaxis(colour, 3, 1), labels, **options, generator=seeded()).X.numpy()
    np.testing.assert_array_equal(last, first)
    np.testing.assert_allclose(np.sort(last, axis=0), np.sort(expected[:8], axis=0), rtol=0, atol=4 * EPS)
    gray = select_images(colour[..., :1], labels, **options, generator=seeded()).X.numpy()
    assert set(gray.flatten()) <= set(colour[..., 0].flatten() / 255)


def test_scaling_of_floats():
    labels = np.zeros(5, dtype=int)
    options = {"classes": (0,), "count": 4, "unit_norm": False}
    unit = select_images(np.full((5, 4), 0.5), labels, **options, generator=seeded())
    byte = select_images(np.full((5, 4), 51.0), labels, **options, generator=seeded())
    ones = select_images(np.ones((5, 4), dtype=np.int64), labels, **options, generator=seeded())
    assert (unit.X[0, 0].item(), byte.X[0, 0].item(), ones.X[0, 0].item()) == (0.5, 51 / 255, 1 / 255)


def test_black_images_and_bad_options():
    images, labels = numbered(20)
    images[:, 1, 1] = 0
    with pytest.raises(DataError, match=r"image \d+ .* is black"):
        select_images(images, labels, count=16, generator=seeded())
    for options, words in [
        ({"count": 0}, "`count`"),
        ({"count": 2, "classes": ()}, "`classes`"),
        ({"count": 2, "classes": (1, 1)}, "different labels"),
        ({"count": 2, "split": "validation"}, "train or test. Got 'validation'"),
        ({"count": 2, "side": 0, "unit_norm": False}, "`side`"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            select_images(images, labels, **options, generator=seeded())


def test_side_of_flat_rows():
    labels = np.zeros(5, dtype=int)
    square = np.arange(5 * 16).reshape(5, 16)
    sample = select_images(square, labels, classes=(0,), count=4, side=2, unit_norm=False, generator=seeded())
    assert sample.X.shape == (4, 4)
    with pytest.raises(DataError, match="no square image"):
        select_images(square[:, :15], labels, classes=(0,), count=1, side=2, generator=seeded())


def test_resize_block_means_and_identity():
    x = torch.arange(16, dtype=torch.float64).reshape(1, 4, 4)
    assert resize_area(x, 2).tolist() == [[[2.5, 4.5], [10.5, 12.5]]]
    assert torch.equal(resize_area(x, 4), x)
    assert resize_area(x, 8)[0, 2, 2] == x[0, 1, 1]


@pytest.mark.parametrize("side", [1, 3, 5, 7, 28, 30])
def test_resize_keeps_means_and_constants(side):
    x = torch.rand(2, 7, 11, dtype=torch.float64, generator=seeded())
    small = resize_area(x, side)
    assert small.shape == (2, side, side)
    torch.testing.assert_close(small.mean(dim=(1, 2)), x.mean(dim=(1, 2)), rtol=1e-14, atol=0)  # sums of 900 terms
    torch.testing.assert_close(resize_area(torch.ones_like(x), side), torch.ones_like(small), rtol=1e-14, atol=0)


def test_resize_agrees_with_fine_sampling():
    # Repeating each pixel `side` times in both directions makes every new pixel a plain block mean.
    x = torch.rand(1, 5, 5, dtype=torch.float64, generator=seeded())
    fine = x.repeat_interleave(3, dim=1).repeat_interleave(3, dim=2)
    blocks = fine.reshape(1, 3, 5, 3, 5).mean(dim=(2, 4))
    torch.testing.assert_close(resize_area(x, 3), blocks, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"count": "4"}, r"`count` of images must be an integer >= 1\. Got '4'"),
        ({"count": 2.5}, r"`count` of images must be an integer >= 1\. Got 2\.5"),
        ({"count": True}, r"`count` of images must be an integer >= 1\. Got True"),
        ({"count": None}, r"`count` of images"),
        ({"side": 2.5}, r"`side` of an image must be an integer from 1 to 10000\. Got 2\.5"),
        ({"side": "2"}, r"`side` of an image"),
        ({"side": 10**9}, r"`side` of an image"),
        ({"classes": "01"}, r"`classes` of images must be one or more different labels\. Got '01'"),
        ({"classes": [0, "1"]}, r"`classes` of images"),
        ({"classes": 3}, r"`classes` of images"),
        ({"split": 3}, r"`split` of images must be train or test\. Got 3"),
        ({"split": ["train"]}, r"`split` of images"),
        ({"generator": 0}, r"`generator` of images must be a torch\.Generator\. Got 0"),
    ],
)
def test_options_of_other_kinds_are_refused_by_name(options, said):
    images, labels = np.zeros((4, 3, 3)), np.array([0, 1, 0, 1])
    given = {"count": 2, "generator": torch.Generator().manual_seed(0), "unit_norm": False} | options
    with pytest.raises(ArgumentError, match=said):
        select_images(images, labels, **given)


@pytest.mark.parametrize("images", [None, [[0.0]], torch.zeros(4, 3, 3), "images"])
def test_images_that_are_no_arrays(images):
    with pytest.raises(ArgumentError, match="`images` must be a NumPy array"):
        select_images(images, np.array([0, 1]), count=2, generator=torch.Generator())


@pytest.mark.parametrize("source", [None, 3, ["mnist"], b"npz"])
def test_sources_that_are_no_names(source):
    with pytest.raises(ArgumentError, match="`source` of images must be one of mnist, idx, npz"):
        load_images(source)


@pytest.mark.parametrize("path", [3, b"a.npz", ["a"]])
def test_files_that_are_no_paths(path):
    with pytest.raises(ArgumentError, match="`images` of images must be the path of a file"):
        load_images("npz", path)


def test_a_name_with_a_nul():
    with pytest.raises(DataError, match="no such file"):
        load_images("npz", "a\0b.npz")


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        (np.array([0, 2**63 + 5], dtype=np.uint64), 1),
        (np.array([1e19, 0.0]), 0),
        (np.array([0, 2**60]), 1),
        (np.array([-1e300, 0.0]), 0),
    ],
)
def test_labels_that_would_wrap(labels, place):
    with pytest.raises(DataError, match=rf"label {place} \(counted from 0\) must lie between -2\^53 and 2\^53"):
        checked_image_set(np.zeros((2, 3, 3)), labels, name="made up")


@pytest.mark.parametrize("dtype", ["u1", "i1", "u8", "i8", "f2", "f4", "f8", "?"])
def test_labels_of_every_type(dtype):
    found = checked_image_set(np.zeros((2, 3, 3)), np.array([0, 1], dtype=dtype), name="made up").labels
    assert (found.tolist(), found.dtype) == ([0, 1], np.int64)
