import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from ntk_deq.data.samples import distance_to_unit_rows
from ntk_deq.errors import ArgumentError, DataError, LimitError, Position
from ntk_deq.evaluation.instance import with_values
from ntk_deq.falsify import instance_at, redrawn, sizes_at
from ntk_deq.falsify.domains import contains, is_cone, rounding
from ntk_deq.falsify.families import family_names
from ntk_deq.falsify.search.feasible import shrink_variants
from ntk_deq.language.declaration import Draw, ImageData, Setting
from ntk_deq.language.domain import Free, parse_domain
from ntk_deq.language.parser import parse
from ntk_deq.language.types import BOOLEAN, SizeRange, shape_type
from ntk_deq.systems import model_signature

COUNT = 400


def free(name: str, domain: str, *shape: str) -> Free:
    return Free(name, shape_type(shape), parse_domain(domain)[0])


def setting(*, name="s", model=None, sizes=None, free_=(), draws=(), images=None, directory=".") -> Setting:
    ranges = sizes if sizes is not None else {"N": (1, 6), "d": (1, 6), "m": (1, 6)}
    return Setting(
        name=name,
        model=model_signature(model) if model else None,
        sizes={k: SizeRange(*v) for k, v in ranges.items()},
        free={v.name: v for v in free_},
        draws={v.name: v for v in draws},
        images=images,
        position=Position("f.yaml", 1, 1),
        directory=directory,
    )


def drawn(name: str, text: str, *shape: str) -> Draw:
    return Draw(name, shape_type(shape), parse(text), text)


def instances(setting_, given, *, count, seed):
    return [instance_at(setting_, given, index, seed) for index in range(count)]


UNIVERSAL = setting(
    free_=(
        free("W", "real", "d", "m"),
        free("A", "real", "m", "m"),
        free("b", "real", "m"),
        free("gamma", "(0, 1)"),
        free("K", "psd", "N", "N"),
        free("U", "unit_rows", "N", "d"),
        free("p", "positive"),
        free("q", "[0, 1]", "N", "m"),
    )
)
GIVEN = {"C": free("C", "positive"), "V": free("V", "orthogonal", "m", "m")}


@pytest.fixture(scope="module")
def ladder():
    return instances(UNIVERSAL, GIVEN, count=COUNT, seed=0)


def same(left, right) -> bool:
    return (
        (left.setting, left.family, left.sizes, left.index) == (right.setting, right.family, right.sizes, right.index)
        and left.rounded == right.rounded
        and left.values.keys() == right.values.keys()
        and all(torch.equal(left.values[k], right.values[k]) for k in left.values)
    )


def test_values_have_the_shapes_of_their_types(ladder):
    for instance in ladder:
        n = instance.sizes
        shapes = {name: tuple(value.shape) for name, value in instance.values.items()}
        assert shapes == {
            "W": (n["d"], n["m"]),
            "A": (n["m"], n["m"]),
            "b": (n["m"],),
            "gamma": (),
            "K": (n["N"], n["N"]),
            "U": (n["N"], n["d"]),
            "p": (),
            "q": (n["N"], n["m"]),
            "C": (),
            "V": (n["m"], n["m"]),
        }
        assert all(v.dtype == torch.float64 and v.device.type == "cpu" for v in instance.values.values())
        assert all(1 <= size <= 6 for size in n.values())


def test_every_value_lies_in_its_domain(ladder):
    for instance in ladder:
        for name, variable in {**UNIVERSAL.free, **GIVEN}.items():
            # 2^-48: a few dozen roundings; only members that say so may need it.
            near = instance.rounded.get(name, 0.0) == rounding(variable.domain, instance.values[name]) <= 2.0**-48
            assert near or contains(variable.domain, instance.values[name]), (name, instance.family)
        assert instance.rounded.keys() <= {"U", "V"}
        assert all(instance.rounded.values())
        assert not instance.rounded or instance.index % 2 == 1


def test_an_instance_depends_on_seed_setting_and_index_only(ladder):
    for index in (0, 7, 8, 63, COUNT - 1):
        assert same(instance_at(UNIVERSAL, GIVEN, index, 0), ladder[index])
    shorter = instances(UNIVERSAL, GIVEN, count=9, seed=0)
    assert all(same(a, b) for a, b in zip(shorter, ladder, strict=False))
    assert not same(instance_at(UNIVERSAL, GIVEN, 63, 1), ladder[63])
    without = instance_at(UNIVERSAL, {}, 61, 0)
    assert torch.equal(without.values["gamma"], ladder[61].values["gamma"])


def test_global_random_state_is_neither_used_nor_changed():
    before = torch.random.get_rng_state()
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    instance_at(UNIVERSAL, GIVEN, 33, 0)
    assert torch.equal(state, torch.random.get_rng_state())
    torch.random.set_rng_state(before)


def test_the_simplest_come_first(ladder):
    first, zeros = ladder[0], ladder[2]
    assert first.sizes == {"N": 1, "d": 1, "m": 1}
    assert all(set(v.flatten().tolist()) <= {0.5, 1.0} for v in first.values.values())
    assert not any(zeros.values[name].any() for name in ("W", "A", "b", "K"))
    assert sum(ladder[0].sizes.values()) <= sum(ladder[300].sizes.values())


def test_sizes_climb_and_reach_the_high_end():
    ranges = {"N": SizeRange(1, 6), "d": SizeRange(2, 9), "m": SizeRange(4, 4)}
    sizes = [tuple(sizes_at(ranges, r, torch.Generator().manual_seed(r)).values()) for r in range(200)]
    assert sizes[0] == (1, 2, 4)
    assert sizes[1] == (2, 3, 4)
    assert {(1, 3, 4), (2, 2, 4), (3, 3, 4), (3, 4, 4), (6, 9, 4)} <= set(sizes[:16])
    assert {n for n, _, _ in sizes} == set(range(1, 7))
    assert {d for _, d, _ in sizes} == set(range(2, 10))
    early, late = (sum(map(sum, part)) / len(part) for part in (sizes[:15], sizes[100:]))
    assert early < late


def test_wide_ranges_are_reached_too():
    ranges = {"N": SizeRange(1, 1000)}
    sizes = [sizes_at(ranges, r, torch.Generator().manual_seed(r))["N"] for r in range(100)]
    assert max(sizes) == 1000
    assert sum(10 < n < 1000 for n in sizes) >= 10


def test_half_of_the_instances_are_exact(ladder):
    for instance in ladder[::2]:
        for name in ("W", "A", "b"):
            mantissa, _ = torch.frexp(instance.values[name])
            assert torch.equal(mantissa * 2**12, (mantissa * 2**12).round()), (name, instance.family)
    random_b = torch.cat([i.values["b"] for i in ladder[1::2]])
    mantissa, _ = torch.frexp(random_b)
    assert (mantissa * 2**12 != (mantissa * 2**12).round()).double().mean() > 0.8


def family_of(instance, name: str) -> str:
    text = instance.family.split(f"{name} = ", 1)[1]
    return text.split(", ", 1)[0] if "signs -1" not in text[:8] else "signs -1, 0, 1"


def test_every_structured_family_and_every_pair_of_them_is_met():
    s = setting(sizes={"m": (2, 4)}, free_=(free("A", "real", "m", "m"), free("B", "real", "m", "m")))
    names = family_names(parse_domain("real")[0], (3, 3))
    pairs = {
        (family_of(i, "A"), family_of(i, "B"))
        for i in instances(s, {}, count=2 * (169 + 2), seed=0)
        if i.index % 2 == 0
    }
    assert pairs == {(a, b) for a in names for b in names}
    early = {family_of(i, "A") for i in instances(s, {}, count=32, seed=0) if i.index % 2 == 0}
    assert early == set(names)


def test_scales_span_sixty_powers_of_two(ladder):
    norms = [i.values["W"].abs().max().item() for i in ladder]
    sizes = [math.log2(norm) for norm in norms if norm > 0]
    assert min(sizes) < -20
    assert max(sizes) > 20
    assert sum(abs(s) < 4 for s in sizes) > COUNT / 2
    words = [i.family.split(", ")[-1] for i in ladder if "scaled by" in i.family]
    assert COUNT / 5 < len(words) < COUNT / 2
    assert any(w.startswith("all ") for w in words)
    assert any(w.startswith("A ") for w in words)
    assert not any(w.startswith(("gamma", "U", "V", "q")) for w in words)


def test_scalars_reach_the_ends_of_their_domain(ladder):
    gammas = [i.values["gamma"].item() for i in ladder]
    assert min(gammas) <= 2.0**-20
    assert max(gammas) >= 1 - 2.0**-20
    assert len(set(gammas)) > COUNT / 4


def test_a_universal_model_setting():
    signature = model_signature("implicit-relu")
    variables = tuple(Free(v.name, shape_type(v.shape), parse_domain(v.domain)[0]) for v in signature.variables)
    s = setting(model="implicit-relu", free_=variables)
    met = repaired = lost = 0
    for instance in instances(s, {}, count=200, seed=0):
        if contraction(instance) < 1:
            met += 1
        elif any(contraction(variant) < 1 for variant in shrink_variants(instance, s, {})):
            repaired += 1
        else:
            lost += 1
    assert met > 80
    assert repaired > 40
    assert lost <= 4


def contraction(instance) -> float:
    return (instance.values["gamma"] * torch.linalg.matrix_norm(instance.values["A"], ord=2)).item()


def test_shrink_variants_stay_in_the_setting_and_get_smaller(ladder):
    for instance in ladder[:80]:
        variants = list(shrink_variants(instance, UNIVERSAL, GIVEN))
        assert 1 <= len(variants) <= 24
        assert len({v.family for v in variants}) == len(variants)
        for variant in variants:
            assert variant.sizes == instance.sizes
            assert variant.index == instance.index
            assert variant.family.startswith(instance.family)
            changed = {k for k in instance.values if not torch.equal(variant.values[k], instance.values[k])}
            assert changed
            for name in changed:
                variable = {**UNIVERSAL.free, **GIVEN}[name]
                assert variant.values[name].abs().max() < instance.values[name].abs().max()
                assert contains(variable.domain, variant.values[name])
                assert instance.values[name].ndim == 0 or is_cone(variable.domain)


def test_shrink_variants_begin_with_one_mild_change():
    s = setting(free_=(free("A", "real", "m", "m"), free("gamma", "(0, 1)")))
    start = with_values(instance_at(s, {}, 1, 0), gamma=0.875)
    variants = list(shrink_variants(start, s, {}))
    assert variants[0].values["gamma"].item() == 0.5
    assert torch.equal(variants[0].values["A"], start.values["A"])
    assert torch.equal(variants[1].values["A"], start.values["A"] / 2)
    smallest = min(variants, key=contraction)
    assert contraction(smallest) <= contraction(start) * 2.0**-29


def test_shrink_variants_of_shifted_and_signed_intervals():
    s = setting(free_=(free("a", "(1, 3)"), free("b", "[-2, 2]"), free("c", "[-3, -1]"), free("k", "integer 2..5")))
    start = with_values(instance_at(s, {}, 0, 0), a=2.875, b=-1.75, c=-2.75, k=4.0)
    ends = {name: {v.values[name].item() for v in shrink_variants(start, s, {})} for name in "abck"}
    assert {2.0, 1.5, 1.125, 1 + 2.0**-9, 2.875} == ends["a"]
    assert {-1.0, -0.5, -0.125, -(2.0**-9), -1.75} == ends["b"]
    assert {-2.0, -1.5, -1.125, -1 - 2.0**-9, -2.75} == ends["c"]
    assert ends["k"] == {4.0}


def test_drawn_variables_are_never_moved():
    s = setting(
        sizes={"m": (3, 3)},
        free_=(free("beta", "positive"), free("eta", "positive")),
        draws=(drawn("W", "beta*gaussian", "m", "m"),),
    )
    start = instance_at(s, {}, 4, 0)
    for variant in shrink_variants(start, s, {}):
        assert torch.equal(variant.values["W"], start.values["W"])
        assert torch.equal(variant.values["beta"], start.values["beta"])


def test_distribution_setting():
    s = setting(
        sizes={"N": (2, 4), "d": (6, 6), "m": (5, 5)},
        free_=(free("beta", "positive"),),
        draws=(
            drawn("W", "beta*normal(0, 1/m)", "d", "m"),
            drawn("A", "tau*identity", "m", "m"),
            drawn("tau", "half_normal(1/m)"),
            drawn("X", "orthonormal_rows", "N", "d"),
        ),
    )
    assert not s.universal
    many = instances(s, GIVEN, count=40, seed=3)
    assert {i.sizes["N"] for i in many} == {2, 3, 4}
    for instance in many:
        v = instance.values
        assert torch.equal(v["A"], v["tau"] * torch.eye(5, dtype=torch.float64))
        assert (v["X"] @ v["X"].T - torch.eye(instance.sizes["N"])).abs().max() < 2.0**-48  # rounding of a QR
        assert 0.1 < v["W"].std() / v["beta"] * math.sqrt(5) < 2.5
        assert v["C"] > 0
        assert "W ~ beta*normal(0, 1/m)" in instance.family
    assert all(not torch.equal(a.values["W"], b.values["W"]) for a, b in pairwise(many))
    assert same(instance_at(s, GIVEN, 17, 3), many[17])


def test_distributions_in_a_circle_and_unknown_scalars():
    circle = setting(draws=(drawn("a", "b*half_normal(1)"), drawn("b", "a*half_normal(1)")))
    with pytest.raises(ArgumentError, match="a, b in setting s use each other in a circle"):
        instance_at(circle, {}, 0, 0)
    unknown = setting(draws=(drawn("W", "bta*gaussian", "m"),))
    with pytest.raises(ArgumentError, match="Did you mean 'beta'"):
        instance_at(unknown, {"beta": free("beta", "positive")}, 0, 0)


def test_bad_calls():
    with pytest.raises(ArgumentError, match=r"`index` of an instance must be an integer >= 0. Got -1"):
        instance_at(UNIVERSAL, {}, -1, 0)
    huge = setting(sizes={"m": (10**6, 10**6)}, free_=(free("A", "real", "m", "m"),))
    with pytest.raises(LimitError, match="`A` would be 1000000 x 1000000"):
        instance_at(huge, {}, 0, 0)
    with pytest.raises(ArgumentError, match="size k of `A` has no value"):
        instance_at(setting(free_=(free("A", "real", "k"),)), {}, 0, 0)
    boolean = setting(free_=(Free("A", BOOLEAN, parse_domain("real")[0]),))
    with pytest.raises(ArgumentError, match=r"must be a scalar, a vector or a matrix. Got boolean"):
        instance_at(boolean, {}, 0, 0)


def test_with_values(ladder):
    start = ladder[5]
    changed = with_values(start, gamma=0.25, b=torch.zeros_like(start.values["b"]))
    assert changed.values["gamma"].item() == 0.25
    assert not changed.values["b"].any()
    assert changed.values["W"] is start.values["W"]
    assert start.values["gamma"].item() != 0.25
    doubled = with_values(start, W=2 * start.values["W"])
    assert torch.equal(doubled.values["W"], 2 * start.values["W"])
    with pytest.raises(ArgumentError, match=r"no variable 'gama'.*Did you mean 'gamma'"):
        with_values(start, gama=1.0)
    with pytest.raises(ArgumentError, match="no variable 'Y'"):
        with_values(start, Y=1.0)
    with pytest.raises(ArgumentError, match=r"`gamma` must keep its shape \(\). Got \(2,\)"):
        with_values(start, gamma=torch.zeros(2))


def test_mnist_setting():
    images = ImageData(side=7, count=6, classes=(3, 8))
    s = setting(
        model="implicit-relu",
        sizes={"N": (6, 6), "m": (8, 8)},
        draws=(drawn("W", "normal(0, 1/m)", "d", "m"), drawn("A", "identity", "m", "m"), drawn("b", "zeros", "m")),
        free_=(free("gamma", "(0, 1)"),),
        images=images,
    )
    first, second = (instance_at(s, {}, i, 0) for i in (0, 1))
    assert first.sizes == {"N": 6, "m": 8, "d": 49}
    assert first.values["W"].shape == (49, 8)
    assert first.values["X"].shape == (6, 49)
    assert first.values["y"].tolist() == [-1.0] * 3 + [1.0] * 3
    assert (first.values["X"].norm(dim=1) - 1).abs().max() < 2.0**-50
    assert not torch.equal(first.values["X"], second.values["X"])
    assert "X = 6 images of mnist, classes 3, 8" in first.family
    assert same(instance_at(s, {}, 1, 0), second)
    wrong = setting(sizes={"N": (6, 6), "d": (50, 50)}, images=images)
    with pytest.raises(DataError, match="`X` of setting s is 6 x 50, but the images give 6 x 49"):
        instance_at(wrong, {}, 0, 0)


def test_draws_that_floats_do_not_hold_say_how_far_off_they_are():
    s = setting(
        sizes={"N": (3, 3), "d": (6, 6), "m": (4, 4)},
        free_=(free("beta", "positive"),),
        draws=(
            drawn("W", "beta*orthonormal_rows", "m", "d"),
            drawn("X", "sphere", "N", "d"),
            drawn("G", "gaussian", "N", "d"),
            drawn("y", "rademacher", "N"),
            drawn("c", "1/3"),
            drawn("C", "3*c*ones", "N", "d"),
            drawn("S", "identity + skew(gaussian)", "m", "m"),
        ),
    )
    instance = instance_at(s, {}, 0, 0)
    assert instance.rounded.keys() == {"W", "X", "c", "C", "S"}
    assert instance.rounded["X"] == distance_to_unit_rows(instance.values["X"])
    assert 0 < instance.rounded["c"] < 2.0**-54
    assert instance.rounded["C"] < 1e-15
    assert instance.rounded["S"] == 0  # what it is rounded to in single precision is no such matrix
    moved = redrawn(s, with_values(instance, beta=2.0**40), 0)
    assert moved.rounded["W"] == pytest.approx(2.0**40 / instance.values["beta"].item() * instance.rounded["W"], rel=1)
    assert {**moved.rounded, "W": 0} == {**instance.rounded, "W": 0}


def test_images_of_norm_one_say_how_far_off_they_are():
    s = setting(sizes={"N": (6, 6), "d": (49, 49)}, images=ImageData(side=7, count=6))
    assert 0 < instance_at(s, {}, 0, 0).rounded["X"] < 2.0**-50
    plain = setting(sizes={"N": (6, 6), "d": (49, 49)}, images=ImageData(side=7, count=6, unit_norm=False))
    assert not instance_at(plain, {}, 0, 0).rounded


def test_images_from_a_file_of_the_setting_s_folder(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", X=rng.integers(1, 255, size=(40, 3, 3)).astype(np.uint8), y=np.arange(40) % 2)
    images = ImageData(source="npz", images="d.npz", targets=None, split="test")
    s = setting(sizes={"N": (2, 6)}, draws=(drawn("y", "rademacher", "N"),), images=images, directory=str(tmp_path))
    for instance in instances(s, {}, count=6, seed=0):
        assert instance.values["X"].shape == (instance.sizes["N"], 9)
        assert instance.sizes["d"] == 9
        assert instance.values["y"].abs().eq(1).all()
    missing = setting(sizes={"N": (2, 6)}, images=ImageData(source="npz", images="e.npz"), directory=str(tmp_path))
    with pytest.raises(DataError, match="no such file"):
        instance_at(missing, {}, 0, 0)
