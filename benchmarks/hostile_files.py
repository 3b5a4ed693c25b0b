"""Hostile files of every kind that the package reads: each must end in time, in our own errors or a right exit code.

Valid files are written, damaged by `hostile_mutations`, and used as a user would: claim files are checked and some of
them judged, others with odd numbers all judged and their runs drawn, data sets loaded, counterexamples replayed,
checkpoints resumed, stored runs loaded and drawn, results drawn, and the store of earlier runs read. A fault is an
exception that is not `ntk_deq.errors.NtkDeqError`, an exit code that the command does not list or that means an
internal error, or more than 10 seconds of processor time (or a minute by the clock). Faulty files are kept in the
folder that --keep names.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
import torch

from benchmarks.hostile_mutations import damaged, damaged_value, odd_number
from benchmarks.machine import print_machine, print_table, verdict
from ntk_deq.claims.claim import Claim
from ntk_deq.claims.load import load_suite
from ntk_deq.cli import figures, main
from ntk_deq.data import load_images, select_images
from ntk_deq.dynamics import TrainingRun, gradient_descent, gradient_flow, resume
from ntk_deq.errors import NtkDeqError
from ntk_deq.systems import ImplicitReLU
from ntk_deq.verify.counterexamples import InstanceStore

LIMIT = 10.0  # seconds of processor time that one input may take
WAITING = 60.0  # seconds by the clock, which counts what workers take, and what else is at work on the machine
_ROOT = Path(__file__).parent.parent
_CLAIMS = """\
suite: hostile
settings:
  plain: {sizes: {n: 1..2}, domain: {A: "real[n, n]", v: "real[n]", c: "(0, 1]"}}
  net: {model: linear-implicit, sizes: {N: 2, d: 2, m: 2}, init: {W: 0.1*identity, U: "normal(0, 1)", b: ones},
        data: {X: orthonormal_rows, y: rademacher}}
claims:
  - {id: wrong, setting: plain, let: {q: norm(A)*c}, assume: {(1): fro(A) <= 3}, conclude: q <= fro(A)/2}
  - {id: right, setting: plain, given: {M: positive}, conclude: {a: norm(A) <= fro(A), b: M*dot(v, v) >= 0}}
  - {id: less, mutates: right, expect: refuted, conclude: {a: norm(A) < fro(A)}}
  - id: trained
    setting: net
    run: {method: gradient-descent, step: 0.1, steps: 20, until: 1e-3}
    conclude: "L[k] <= (1/100)^k*L[0] for all k"
"""

_FLOW = """\
  - id: flows
    setting: net
    run: {method: gradient-flow, horizon: 2, until: 1e-3}
    conclude: {loss: "L[t] <= exp(-t/100)*L[0] for all t", b: "norm(b[t] - b[0]) <= 4*path_length[t] for all t"}
"""


class HangError(BaseException):
    """An input took too long; no `except Exception` stops it."""


@dataclass(frozen=True)
class Kind:
    """One kind of input.

    Attributes:
        name: Its name.
        make: Writes a damaged file into a folder and returns what to use.
        use: Uses it; returns a word for what came of it.
    """

    name: str
    make: Callable[[Path, random.Random], Path]
    use: Callable[[Path], str]


def samples(folder: Path) -> Iterator[Kind]:
    """Write the valid files and yield the kinds of input made from them."""
    texts = [_CLAIMS, *(path.read_text("utf-8") for path in sorted((_ROOT / "checks").glob("**/*.yaml")))]
    texts = [text for text in texts if "include" not in text]
    (folder / "valid.yaml").write_text(_CLAIMS, encoding="utf-8")
    code = _called(main.main, ["run", str(folder / "valid.yaml"), "--out", str(folder / "out"), *_QUICK])
    assert code in (0, 1, 6), code
    replays = [path.read_bytes() for path in sorted((folder / "out" / "counterexamples").glob("*.yaml"))]
    assert replays
    results = (folder / "out" / "results.jsonl").read_text("utf-8")
    runs = _runs(folder)
    data = _data()

    def claim(place: Path, rng: random.Random) -> Path:
        text = texts[0] if rng.random() < 0.6 else rng.choice(texts)
        return _written(place / "claims.yaml", damaged(text.encode(), rng))

    def numbers(place: Path, rng: random.Random) -> Path:
        content = (_CLAIMS + _FLOW).encode()
        for _ in range(rng.choice((1, 1, 2))):
            content = odd_number(content, rng)
        return _written(place / "numbers.yaml", content)

    def data_file(place: Path, rng: random.Random) -> Path:
        name = rng.choice(sorted(data))
        return _written(place / name, damaged(data[name], rng))

    def replayed(place: Path, rng: random.Random) -> Path:
        return _written(place / "found.yaml", damaged(rng.choice(replays), rng))

    def run(place: Path, rng: random.Random) -> Path:
        content = rng.choice(runs)
        return _written(place / "run.npz", _record(content, rng) if rng.random() < 0.8 else damaged(content, rng))

    def result(place: Path, rng: random.Random) -> Path:
        lines = results.splitlines()
        with_runs = [number for number, line in enumerate(lines) if '"runs": [{' in line]
        if rng.random() < 0.8:
            number = rng.choice(with_runs)
            entry = json.loads(lines[number])
            if rng.random() < 0.9:
                entry["runs"] = damaged_value(entry["runs"], rng)
            else:
                entry = damaged_value(entry, rng)
            lines[number] = json.dumps(entry)
            content = "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"
        else:
            content = damaged(results.encode(), rng)
        (place / "results").mkdir(exist_ok=True)
        _written(place / "results" / "results.jsonl", content)
        return place / "results"

    yield Kind("claim", claim, _use_claim)
    yield Kind("numbers", numbers, _use_numbers)
    yield Kind("data", data_file, _use_data)
    yield Kind("replay", replayed, _use_replay)
    yield Kind("checkpoint", run, _use_checkpoint)
    yield Kind("stored run", run, _use_stored_run)
    yield Kind("results", result, _use_results)
    yield _store(folder)


def _store(folder: Path) -> Kind:
    """Return the kind of damaged instances in the store of earlier runs."""
    words = ["run", str(folder / "valid.yaml"), "--out", str(folder / "out"), "--store", str(folder / "store")]
    code = _called(main.main, [*words, "-k", "wrong", "--instances", "2", "--search", "0"])
    found = sorted((folder / "store" / "instances").glob("wrong-*/*.yaml"))
    assert code in (0, 1, 6), code
    assert found
    claim = next(claim for claim in load_suite(folder / "valid.yaml").claims if claim.id == "wrong")
    assert isinstance(claim, Claim)
    contents = {path: path.read_bytes() for path in found}

    def damage(place: Path, rng: random.Random) -> Path:
        path = rng.choice(found)
        for other, content in contents.items():
            other.write_bytes(content)
        return _written(path, damaged(contents[path], rng))

    def use(path: Path) -> str:
        store = InstanceStore(folder / "store")
        kept = store.stored_instances(claim)
        return "all kept" if len(kept) == len(found) else "skipped and said" if store.notes else "of another claim"

    return Kind("store", damage, use)


_QUICK = ("--no-store", "--instances", "2", "--search", "0", "--time-limit", "5", "--precision", "53")


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _runs(folder: Path) -> list[bytes]:
    generator = torch.Generator().manual_seed(0)
    model = ImplicitReLU.random(2, 3, generator=generator)
    X = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    X, y = X / X.norm(dim=1, keepdim=True), torch.ones(3, dtype=torch.float64)
    found = []
    for run in (
        gradient_descent(model, X, y, step=0.02, steps=3, record=["norm"], snapshots=4),
        gradient_flow(model, X, y, horizon=0.05, snapshots=3, record=["norm"]),
    ):
        run.save(folder / "run.npz")
        found.append((folder / "run.npz").read_bytes())
    return found


def _data() -> dict[str, bytes]:
    images, labels = np.arange(4 * 9, dtype=np.uint8).reshape(4, 3, 3), np.array([0, 1, 0, 1])
    found = {}
    for name, save, arrays in (
        ("plain.npz", np.savez, {"X": images, "y": labels}),
        ("packed.npz", np.savez_compressed, {"images": images / 40.0, "labels": labels.astype(float)}),
    ):
        stream = io.BytesIO()
        save(stream, **arrays)  # type: ignore[operator]
        found[name] = stream.getvalue()
    found["images.idx"] = bytes([0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 3]) + images.tobytes()
    return found


def _record(content: bytes, rng: random.Random) -> bytes:
    """Change the header or an array of a record, and leave a whole archive."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if rng.random() < 0.8:
        header = json.loads(arrays["header"].tobytes())
        header["run"] = damaged_value(header["run"], rng)
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    else:
        name = rng.choice(sorted(arrays))
        value = arrays[name]
        odd = (value.astype("f4"), value.astype("i8"), value[None], value.ravel()[:1], value * 0, value * float("nan"))
        arrays[name] = rng.choice(odd) if value.dtype.kind == "f" else value[: len(value) // 2]
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def _called(command: Callable[[list[str]], int], words: list[str]) -> int:
    """Run a command in this process with its output thrown away; return its exit code."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return command(words)
        except SystemExit as stop:
            return int(stop.code or 0)


def _expected(code: int, allowed: tuple[int, ...]) -> str:
    if code not in allowed:
        raise AssertionError(f"exit code {code}")
    return f"exit {code}"


def _use_claim(path: Path) -> str:
    said = _expected(_called(main.main, ["check", str(path)]), (0, 4, 5))
    text = path.read_bytes()
    if said == "exit 0" and b"suite: hostile" in text and len(text) % 4 == 0:
        words = ["run", str(path), "--out", str(path.parent / "out"), *_QUICK]
        return "run, " + _expected(_called(main.main, words), (0, 1, 4, 5, 6))
    return said


def _use_numbers(path: Path) -> str:
    out = str(path.parent / "out")
    code = _called(main.main, ["run", str(path), "--out", out, *_QUICK, "--time-limit", "1"])
    said = _expected(code, (0, 1, 4, 5, 6))
    if code in (0, 1, 6):
        said += ", figures " + _expected(_called(figures.main, [out, "--format", "svg"]), (0, 5))
    return said


def _use_data(path: Path) -> str:
    if path.suffix == ".idx":
        labels = _written(path.with_name("labels"), bytes([0, 0, 8, 1, 0, 0, 0, 4, 0, 1, 0, 1]))
        loaded = load_images("idx", path, labels)
    else:
        loaded = load_images("npz", path)
    generator = torch.Generator().manual_seed(0)
    select_images(loaded.images, loaded.labels, count=2, side=2, generator=generator, unit_norm=False)
    return "used"


def _use_replay(path: Path) -> str:
    return _expected(_called(main.main, ["replay", str(path), "--time-limit", "5"]), (0, 1, 4))


def _use_checkpoint(path: Path) -> str:
    run = TrainingRun.load(path)
    resume(path, **({"horizon": 0.06} if run.method == "gradient-flow" else {"steps": 6}))
    return "used"


def _use_stored_run(path: Path) -> str:
    from ntk_deq.plots import plot_run

    run = TrainingRun.load(path)
    repr(run), run._repr_html_(), [run[name] for name in run.series], run.loss, run.parameters
    run.slice(0, run.end)
    plot_run(run)
    return "used"


def _use_results(path: Path) -> str:
    words = [str(path), "--format", "svg", "--out", str(path.parent / "figures")]
    return _expected(_called(figures.main, words), (0, 4, 5))


def _alarm(number: int, frame: FrameType | None) -> None:
    raise HangError(f"more than {LIMIT:g} s" if number == signal.SIGPROF else f"more than {WAITING:g} s by the clock")


def fault(kind: Kind, path: Path) -> tuple[str, str]:
    """Return what came of an input, and what is wrong with that; nothing where all is right."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return kind.use(path), ""
    except NtkDeqError as error:
        return type(error).__name__, ""
    except HangError as error:
        return "hang", f"{error} {_where(error)}"
    except Exception as error:
        return "fault", f"{type(error).__name__}: {str(error)[:80]} {_where(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _close_figures()


def _close_figures() -> None:
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def _where(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "ntk_deq" in frame.filename]
    return f"at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def fuzz(
    kind: Kind, count: int, seed: int, folder: Path, keep: Path | None, seconds: float
) -> tuple[Counter[str], int]:
    """Try some inputs of a kind; return what came of them, and how many faults there were."""
    came: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    started = time.perf_counter()
    for number in range(count):
        if time.perf_counter() - started > seconds:
            break
        rng = random.Random(f"{seed} {kind.name} {number}")
        path = kind.make(folder, rng)
        what, wrong = fault(kind, path)
        came[what] += 1
        if wrong:
            faults[wrong] += 1
            if faults[wrong] == 1:
                print(f"FAULT {kind.name} {number}: {wrong}", flush=True)
                if keep is not None:
                    source = path / "results.jsonl" if path.is_dir() else path
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{kind.name}-{number}{source.suffix}").write_bytes(source.read_bytes())
    return came, faults.total()


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000, help="inputs of each kind (default 3000)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time for each kind (default: no limit)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", help="one kind of input (default: all)")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that show a fault")
    options = parser.parse_args()
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _alarm)
    signal.signal(signal.SIGPROF, _alarm)
    print_machine()
    rows: list[list[str]] = []
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        for kind in samples(Path(name)):
            if options.kind and kind.name not in options.kind:
                continue
            place = Path(name) / "place"
            place.mkdir(exist_ok=True)
            came, faults = fuzz(kind, options.count, options.seed, place, options.keep, options.seconds)
            words = ", ".join(f"{number} {what}" for what, number in came.most_common())
            rows.append([kind.name, str(came.total()), str(faults), words])
            total += Counter(tried=came.total(), faults=faults)
    print_table(["kind", "inputs", "faults", "what came of them"], rows)
    return verdict(f"{total['tried']} inputs without a fault (found {total['faults']})", not total["faults"])


if __name__ == "__main__":
    sys.exit(_main())
