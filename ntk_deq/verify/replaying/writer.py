"""Write an instance file: a claim with one instance of it, self-contained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.verify.replaying.arrays import archive_bytes
from ntk_deq.verify.replaying.atomic import write_whole
from ntk_deq.verify.replaying.numbers import bound_text, number_text
from ntk_deq.verify.replaying.record import FORMAT, MAX_INLINE, Record
from ntk_deq.verify.replaying.statement import claim_file
from ntk_deq.verify.replaying.values import value_data
from ntk_deq.verify.replaying.yaml_text import NumberText, to_yaml

_FAMILY = 400  # characters of the description of an instance that are kept


def write_record(path: Path, record: Record) -> None:
    """Write an instance file, and an archive beside it for variables of more than `MAX_INLINE` entries.

    Args:
        path: The file; its name ends with .yaml. The archive has the same name with .npz.
        record: What to write.

    Raises:
        ArgumentError: The name ends with something else, or a value is not finite.
        OSError: It cannot be written.
    """
    if path.suffix != ".yaml":
        raise ArgumentError(f"`path` of an instance file must end with .yaml. Got {path.name}.")
    archive = path.with_suffix(".npz")
    large = {name: value for name, value in record.instance.values.items() if value.numel() > MAX_INLINE}
    content = to_yaml(_data(record, large, archive.name))
    if large:
        write_whole(archive, archive_bytes(large))
    head = f"# A {record.kind.value} of {record.claim.id}. To judge it again: verify-claims replay {path.name}\n"
    write_whole(path, (head + content).encode())


def _data(record: Record, large: dict[str, Tensor], archive: str) -> dict[str, Any]:
    instance = record.instance
    data: dict[str, Any] = {
        "format": FORMAT,
        "kind": record.kind.value,
        "claim": record.claim.id,
        "found_in": record.found_in,
        "fingerprint": record.fingerprint,
        "setting": instance.setting,
        "family": instance.family[:_FAMILY],
        "index": instance.index,
        "seed": record.seed,
        "dtype": record.dtype,
        "precision": record.precision,
        "device": record.device,
        "versions": record.versions,
        "conclusion": record.conclusion,
        "lhs": record.lhs,
        "relation": record.relation,
        "rhs": record.rhs,
        "margin": [NumberText(bound_text(bound)) for bound in (record.margin.lo, record.margin.hi)],
    }
    if record.step:
        data["step"] = {name: NumberText(number_text(at)) for name, at in record.step.items()}
    data["sizes"] = instance.sizes
    if instance.rounded:
        data["rounded"] = {name: NumberText(number_text(off)) for name, off in sorted(instance.rounded.items())}
    if instance.solved:
        data["solved"] = sorted(instance.solved)
    data["values"] = {
        name: {"npz": archive} if name in large else value_data(value) for name, value in instance.values.items()
    }
    data["statement"] = claim_file(record.claim)
    return data
