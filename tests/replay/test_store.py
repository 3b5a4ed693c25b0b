"""The store: what a run keeps, the next one tries; damage, change and company do no harm."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import torch
from replay_samples import SUITE, claim_of, judged, sample_claim, sample_instance, suite_file

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.instance import Instance
from ntk_deq.verify.counterexamples import EACH, InstanceStore
from ntk_deq.verify.judge import Judgement, refutes


def keep(store: InstanceStore, claim: Claim, *judgements: Judgement) -> None:
    for judgement in judgements:
        store.keep(claim, judgement, seed=0)


def near(claim: Claim, size: float) -> Judgement:
    """An instance without a counterexample whose margin of `dot(v, v) >= 0` grows with `size`."""
    found = judged(claim, sample_instance(A=[[0.0, 0.0]], v=[size]))
    assert not refutes(found)
    return found


def broken(claim: Claim, entry: float) -> Judgement:
    found = judged(claim, sample_instance(A=[[entry, 0.0]], M=1000.0))
    assert refutes(found)
    return found


def files(store: InstanceStore) -> list[Path]:
    return sorted((store.folder / "instances").glob("*/*.yaml"))


def test_what_is_kept_comes_back_counterexamples_first(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    store = InstanceStore(tmp_path / ".ntk_deq")
    assert store.stored_instances(claim) == []
    keep(store, claim, near(claim, 2.0), broken(claim, 3.0))
    found = InstanceStore(tmp_path / ".ntk_deq").stored_instances(claim)
    assert [refutes(judged(claim, instance)) for instance in found] == [True, False]
    assert torch.equal(found[0].values["A"], torch.tensor([[3.0, 0.0]], dtype=torch.float64))
    assert found[0].family == "from the store: by hand"
    keep(store, claim, judged(claim, found[0]))
    assert store.stored_instances(claim)[0].family == "from the store: by hand"
    assert store.notes == []
    assert (tmp_path / ".ntk_deq" / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_the_plainest_and_the_tightest_stay(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    store = InstanceStore(tmp_path / ".ntk_deq")
    digits = [1.0, 12.0, 123.0, 12.25, 123.125, 100.0625, 1.0]
    keep(store, claim, *(broken(claim, entry) for entry in reversed(digits)))
    assert len(files(store)) == EACH
    kept = [i.values["A"][0, 0].item() for i in store.stored_instances(claim)]
    assert kept == [1.0, 12.0, 123.0, 12.25]
    keep(store, claim, *(near(claim, size) for size in (8.0, 1.0, 4.0, 0.5, 2.0, 16.0)))
    assert len(files(store)) == 2 * EACH
    assert len(store.stored_instances(claim)) == 2 * EACH


def test_a_changed_claim_starts_afresh_and_the_old_one_is_found_again(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    store = InstanceStore(tmp_path / ".ntk_deq")
    keep(store, claim, broken(claim, 3.0))
    changed = claim_of(suite_file(tmp_path, SUITE.replace("norm(A)/2", "norm(A)/3")), "sample.norm")
    assert store.stored_instances(changed) == []
    retitled = claim_of(suite_file(tmp_path, SUITE.replace("The norm, halved", "Title")), "sample.norm")
    assert len(store.stored_instances(retitled)) == 1
    # A file under the name of another statement is not used either.
    keep(store, changed, judged(changed, sample_instance()))
    mine, other = (store._place(c, _mark(c)) for c in (claim, changed))
    os.replace(files_in(mine)[0], other / files_in(mine)[0].name)
    assert len(store.stored_instances(changed)) == 1


def _mark(claim: Claim) -> str:
    from ntk_deq.claims.statement import fingerprint

    return fingerprint(claim)


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def test_statements_long_out_of_use_are_forgotten(tmp_path: Path) -> None:
    store = InstanceStore(tmp_path / ".ntk_deq")
    for number in range(2, 9):
        text = SUITE.replace("norm(A)/2", f"norm(A)/{number}")
        claim = claim_of(suite_file(tmp_path, text), "sample.norm")
        keep(store, claim, broken(claim, 3.0))
        place = files(store)[0].parent
        os.utime(place, (number, number))
    assert 1 < len(list((tmp_path / ".ntk_deq" / "instances").iterdir())) <= 4
    assert len(store.stored_instances(claim)) == 1


@pytest.mark.parametrize("content", [b"", b"\xff", b"a: b", b"[" * 5000, b"format: 1\n"])
def test_a_damaged_file_is_skipped_with_a_note(tmp_path: Path, content: bytes) -> None:
    claim = sample_claim(tmp_path)
    store = InstanceStore(tmp_path / ".ntk_deq")
    keep(store, claim, broken(claim, 3.0), broken(claim, 5.0))
    files(store)[0].write_bytes(content)
    assert len(store.stored_instances(claim)) == 1
    assert len(store.notes) == 1
    assert "is skipped: " in store.notes[0]


def test_a_store_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    store = InstanceStore(tmp_path / "file")
    keep(store, claim, broken(claim, 3.0), broken(claim, 5.0))
    assert store.stored_instances(claim) == []
    assert len(store.notes) == 1
    assert "keeps nothing for later runs: " in store.notes[0]


def test_git_is_told_to_ignore_a_folder_of_the_store_alone(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    keep(InstanceStore(tmp_path), claim, broken(claim, 3.0))
    assert files(InstanceStore(tmp_path))
    assert not (tmp_path / ".gitignore").exists()


DRAWN = """
suite: drawn
settings:
  s: {sizes: {n: 2}, init: {A: "normal(0, 1) [n, n]"}}
claims:
  - {id: drawn, setting: s, conclude: norm(A) <= 0}
"""


def test_draws_are_not_kept_since_nothing_shows_that_they_are_draws(tmp_path: Path) -> None:
    claim = claim_of(suite_file(tmp_path, DRAWN), "drawn")
    store = InstanceStore(tmp_path / ".ntk_deq")
    instance = Instance("s", "A ~ normal", {"n": 2}, {"A": torch.eye(2, dtype=torch.float64)}, 0)
    keep(store, claim, judged(claim, instance))
    assert not (tmp_path / ".ntk_deq").exists()


def test_instances_that_are_outside_or_huge_are_not_kept(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    store = InstanceStore(tmp_path / ".ntk_deq")
    keep(store, claim, judged(claim, sample_instance(M=0.001)))
    assert files(store) == []


def test_runs_side_by_side_do_no_harm(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    judgements = [broken(claim, float(k)) for k in range(1, 9)]
    stores = [InstanceStore(tmp_path / ".ntk_deq") for _ in range(4)]

    def work(store: InstanceStore) -> None:
        for judgement in judgements:
            keep(store, claim, judgement)
            store.stored_instances(claim)

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.notes for store in stores] == [[]] * 4
    kept = {i.values["A"][0, 0].item() for i in stores[0].stored_instances(claim)}
    assert len(kept) == EACH
    assert kept < {float(k) for k in range(1, 9)}
    assert not list((tmp_path / ".ntk_deq").rglob("*.partial"))


def _links(folder: Path, claim: Claim) -> dict[str, Path]:
    place = InstanceStore(folder)._place(claim, _mark(claim))
    return {"instances": place.parent, "the claim's folder": place}


@pytest.mark.parametrize("which", ["instances", "the claim's folder"])
def test_a_link_in_the_store_is_not_written_through(tmp_path: Path, which: str) -> None:
    claim = sample_claim(tmp_path)
    elsewhere, store = tmp_path / "elsewhere", InstanceStore(tmp_path / ".ntk_deq")
    keep(store, claim, broken(claim, 3.0))
    link = _links(tmp_path / ".ntk_deq", claim)[which]
    link.rename(elsewhere)
    link.symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    keep(store, claim, *(broken(claim, float(k)) for k in range(1, 9)))
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before
    assert store.stored_instances(claim) == []
    assert len(store.notes) == 1
    assert "it is a link, and nothing is written through one" in store.notes[0]


def test_files_that_are_not_of_the_store_stay(tmp_path: Path) -> None:
    """Also where the folder of a statement is forgotten, or is a link to one with files of any name."""
    store, elsewhere = InstanceStore(tmp_path / ".ntk_deq"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    names = ["c-00-0123456789abcdef.npz", "c-00-0123456789abcdef.yaml", "c-mine.yaml", "mine.npz", "mine.yaml"]
    for name in names:
        (elsewhere / name).write_text("mine", encoding="utf-8")
    for number in range(2, 12):
        claim = claim_of(suite_file(tmp_path, SUITE.replace("norm(A)/2", f"norm(A)/{number}")), "sample.norm")
        keep(store, claim, broken(claim, 3.0))
        place = store._place(claim, _mark(claim))
        for name in names[2:]:
            (place / name).write_text("mine", encoding="utf-8")
        os.utime(place, (number, number))
    place.with_name(f"sample.norm-{'0' * 16}").symlink_to(elsewhere)
    os.utime(elsewhere, (0, 0))
    keep(store, claim, broken(claim, 5.0))
    assert sorted(path.name for path in elsewhere.iterdir()) == names
    of_the_store = [path for path in place.parent.rglob("*.yaml") if "mine" not in path.name]
    assert len(of_the_store) == 5
    assert len(list(place.parent.rglob("mine.yaml"))) == 10


def test_a_pipe_or_link_in_the_place_of_a_file_is_not_opened(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    store = InstanceStore(tmp_path / ".ntk_deq")
    keep(store, claim, broken(claim, 3.0))
    (kept,) = files(store)
    os.mkfifo(kept.with_name("c-0-0123456789abcdef.yaml"))
    kept.with_name("c-1-0123456789abcdef.yaml").symlink_to(tmp_path / "missing")
    assert len(store.stored_instances(claim)) == 1
    assert store.notes == []
