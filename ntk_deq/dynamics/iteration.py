"""Recursions in Python: formulas of the claim language or a torch callable, with a record like that of training."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from ntk_deq.certified import ball
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.precise import as_ball, precise
from ntk_deq.dynamics.proven.recursion import radius
from ntk_deq.dynamics.record import RunStatus, Series, Snapshot, TrainingRun
from ntk_deq.dynamics.recursion import (
    FLOATS,
    GROWTH,
    SAFETY,
    SMALL,
    all_steps,
    estimate_steps,
    step_taken,
    steps_with_bits,
)
from ntk_deq.errors import ArgumentError, ExpressionError, LimitError, Position, check_instance
from ntk_deq.evaluation.derivatives.derivative import PROVIDERS
from ntk_deq.evaluation.environment import Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.application import Functions
from ntk_deq.language.arguments import definition, is_head
from ntk_deq.language.families import defined
from ntk_deq.language.parser import parse
from ntk_deq.language.recursion import base_name, entries_in, ordered, recursions_in, recursive_names
from ntk_deq.language.run import MAX_STEPS, RECURSION
from ntk_deq.language.tree import Expr, Formula
from ntk_deq.language.types import SCALAR, Type, matrix
from ntk_deq.language.typing import infer
from ntk_deq.package import __version__

State = dict[str, Tensor]
_SNAPSHOTS = 64
_HERE = Position("", 1, 1)


def iterate(
    step: Callable[..., Tensor | Mapping[str, Tensor]] | Mapping[str, str],
    start: Tensor | Mapping[str, Tensor] | TrainingRun | None = None,
    *,
    steps: int,
    values: Mapping[str, Tensor | float] | None = None,
    watch: Callable[[State], float] | None = None,
) -> TrainingRun:
    """Run a recursion and return its record: snapshots, series, error, why it ended; `save`, `plot` and slices with it.

    Formulas are those of `let` in a claim file, `{"z[0]": "z0", "z[k+1]": "relu(W*z[k] + b)"}`. Every state is
    proven to lie within `error` of the exact one (`settings["certified"]`) where the values are at most 2048 numbers
    and arb arithmetic has a form for them, and elsewhere as long as an error that is carried along stays small. Beyond,
    and for a callable, `error` is an estimate from a second run that is moved by 1e-8, relative, at every step.

    Args:
        step: Formulas by name, functions of arguments such as `f(u)` among them; or a callable: `step(state, k)` gives
            the state at k + 1 from that at k, a tensor, or a mapping of tensors as `start` is one.
        start: The state at step 0 of a callable, or a record of a recursion, from whose end the run goes on; formulas,
            which have their starts among them, are computed anew up to there.
        steps: Number of steps, at most 10,000.
        values: The values of the names in the formulas: numbers, vectors and matrices in float64.
        watch: What is followed as the `loss` of the record, a number of each state; left out: the length of the step
            that led to it, of the first one that it leads to.

    Returns:
        The record: `parameters` is the state at the end.

    Raises:
        ArgumentError: An argument is wrong, or the formulas are no recursion.

    Example:
        >>> import torch
        >>> run = iterate({"z[0]": "c", "z[k+1]": "z[k]/2"}, values={"c": torch.ones(2, dtype=torch.float64)}, steps=3)
        >>> run.parameters["z"].tolist(), run.status.value, run.error
        ([0.125, 0.125], 'steps', 0.0)
        >>> iterate(lambda z, k: z / 2, torch.tensor(8.0, dtype=torch.float64), steps=3).parameters["state"].item()
        1.0
    """
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= MAX_STEPS:
        raise ArgumentError(f"`steps` of iterate must be a whole number from 1 to {MAX_STEPS}. Got {steps!r}.")
    began = time.perf_counter()
    if isinstance(step, Mapping):
        before = start if isinstance(start, TrainingRun) else None
        if start is not None and before is None:
            raise ArgumentError("`start` of iterate stands among the formulas, as in z[0]: z0. Got one besides.")
        first = 0 if before is None else _start(before)[1]
        if first + steps > MAX_STEPS:
            raise ArgumentError(f"`steps` of iterate end at {MAX_STEPS} at the latest. Got {steps} after {first}.")
        states, error, certified, detail = _of_formulas(step, _values({} if values is None else values), first + steps)
        if before is not None:
            _check_continued(before, states, error)
        states = states[first:]
    else:
        if values:
            raise ArgumentError("`values` of iterate are for formulas; a callable has its own.")
        _check_step(step)
        state, first = _start(start)
        states, detail = _of_callable(step, state, first, steps, None)
        moved, _ = _of_callable(step, state, first, steps, torch.Generator().manual_seed(0))
        certified, error = False, _distance(states, moved, (isinstance(start, TrainingRun) and start.error) or 0.0)
    return _record(states, first, detail, error, certified, watch, time.perf_counter() - began)


def _start(start: Tensor | Mapping[str, Tensor] | TrainingRun | None) -> tuple[State, int]:
    """Return the state that a callable starts from, and its step."""
    if isinstance(start, TrainingRun):
        if start.method != RECURSION.name:
            raise ArgumentError(f"`start` of iterate must be a record of a recursion. Got one of {start.method}.")
        return dict(start.parameters), int(start.end)
    if start is None:
        raise ArgumentError("`start` of iterate is missing: the state at step 0, a tensor or a mapping of tensors.")
    if not isinstance(start, Tensor | Mapping):
        raise ArgumentError(f"`start` of iterate must be a tensor or a mapping of tensors. Got {start!r:.100}.")
    state = {"state": start} if isinstance(start, Tensor) else dict(start)
    for name, value in state.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise ArgumentError(f"`start` of iterate must hold tensors of floats. Got {value!r} for {name!r}.")
    if not state:
        raise ArgumentError("`start` of iterate must hold a tensor. Got none.")
    return {name: value.detach() for name, value in state.items()}, 0


def _check_continued(before: TrainingRun, states: list[State], error: float) -> None:
    """Refuse to go on from a record that the formulas do not come to."""
    at, end = int(before.end), before.parameters
    here = states[at] if at < len(states) else {}
    same = {name: value.shape for name, value in here.items()} == {name: value.shape for name, value in end.items()}
    rounding = torch.finfo(torch.float64).eps * math.hypot(*(float(v.norm()) for v in end.values()))
    room = (before.error or 0.0) + error + rounding
    if not same or not math.hypot(*(float((here[n] - v).norm()) for n, v in end.items())) <= room:
        raise ArgumentError(
            f"`start` of iterate must be a record of the same formulas and values. Got another at {at}."
        )


def _values(values: Mapping[str, Tensor | float]) -> dict[str, Tensor]:
    """Return the values of names in float64."""
    check_instance(values, Mapping, "values", "iterate", "a mapping of names to numbers and tensors")
    found = {}
    for name, value in values.items():
        try:
            tensor = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ArgumentError(
                f"`values` of iterate holds numbers and tensors. Got {value!r:.100} for {name!r}."
            ) from error
        if tensor.is_complex():
            raise ArgumentError(f"`values` of iterate holds real numbers. Got {tensor.dtype} for {name!r}.")
        found[name] = tensor.detach().to(torch.float64)
    return found


def _check_step(step: object) -> None:
    """Refuse what cannot be called with a state and the number of its step."""
    wanted = "`step` of iterate is called with a state and the number of its step, as step(z, k)"
    if not callable(step):
        raise ArgumentError(f"{wanted}, or holds formulas by name. Got {step!r:.100}.")
    try:
        inspect.signature(step.forward if isinstance(step, torch.nn.Module) else step).bind(None, 0)
    except TypeError as error:
        raise ArgumentError(f"{wanted}. Got {step!r:.100}: {error}.") from error
    except ValueError:  # nothing is known of what it takes
        return


def _of_callable(
    step: Callable[..., Tensor | Mapping[str, Tensor]],
    state: State,
    first: int,
    steps: int,
    generator: torch.Generator | None,
) -> tuple[list[State], str]:
    """Return the states of a run up to where it breaks off, and why it does; a generator moves each a little."""
    single, states, detail = list(state) == ["state"], [state], ""
    for k in range(first, first + steps):
        if generator is not None:
            noise = {n: torch.randn(v.shape, generator=generator, dtype=torch.float64).to(v) for n, v in state.items()}
            state = {name: value * (1 + GROWTH * noise[name]) for name, value in state.items()}
        given = {name: value.clone() for name, value in state.items()}  # a step may be taken in place
        with torch.enable_grad():  # which a step of descent may take
            found = step(given["state"], k) if single else step(given, k)
        if not isinstance(found, Tensor | Mapping):
            raise ArgumentError(f"`step` of iterate must return a tensor or a mapping of tensors. Got {found!r}.")
        new = {"state": found} if isinstance(found, Tensor) else dict(found)
        new = {name: value.detach() for name, value in new.items()}
        if {n: v.shape for n, v in new.items()} != {n: v.shape for n, v in state.items()}:
            shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in new.items())
            raise ArgumentError(f"`step` of iterate must give a state of the shape of its start. Got {shapes}.")
        if not all(bool(torch.isfinite(value).all()) for value in new.values()):
            detail = f"the recursion breaks off: step {k + 1} is not finite"
            break
        state = new
        states.append(state)
    return states, detail


def _distance(states: list[State], moved: list[State], before: float) -> float:
    """Return the estimated error: the distance of two runs, times what rounding is of that by which one is moved.

    Args:
        states: The run.
        moved: The one that is moved at every step.
        before: What the start is off, which grows as their distance does.
    """
    eps = max(torch.finfo(value.dtype).eps for value in states[0].values())
    apart, grown = 0.0, 1.0
    start = GROWTH * math.hypot(*(float(torch.linalg.vector_norm(v)) for v in states[0].values()))
    for k, (here, there) in enumerate(zip(states, moved, strict=False)):
        gaps = [float(torch.linalg.vector_norm(here[name] - there[name])) for name in here]
        sizes = [float(torch.linalg.vector_norm(value)) for value in here.values()]
        apart = max(apart, SAFETY * (math.hypot(*gaps) * eps / GROWTH * (k + 1) + eps * math.hypot(*sizes)))
        grown = max(grown, math.hypot(*gaps) / start if start else 1.0)
    return apart + before * grown if len(states) == len(moved) else math.inf


def _typed(step: Mapping[str, str], values: Mapping[str, Tensor | float]) -> dict[str, Formula]:
    """Return the formulas with their types, in an order in which each uses earlier ones.

    Raises:
        ArgumentError: They are no recursion, or do not fit each other.
    """
    types = {name: _type(name, value) for name, value in values.items()}
    steps_at: dict[str, Type] = {}
    try:
        functions = {key: definition(key, text, parse(text)) for key, text in step.items() if is_head(key)}
        read = {key: parse(text) for key, text in step.items() if key not in functions}
        behind: dict[str, list[Expr]] = {}
        for key, expr in read.items():
            behind.setdefault(defined(key).name, []).append(expr)
        opened = Functions.of(functions, {*values, *behind}, behind)
        for function in functions.values():
            opened.check(function)
        let = {key: Formula(key, step[key], opened.written_out(expr), _HERE) for key, expr in read.items()}
        names = recursive_names(let)
        if not names:
            raise ArgumentError("`step` of iterate must hold a rule, such as z[k+1]: T(z[k]). Got none.")
        recursions_in(let, names)
        entries = {entry.key: entry for entry in entries_in(let, names)}
        order, left = ordered(let, names)
        if left:
            raise ArgumentError(f"`step` of iterate: {left[0]} rests on itself.")
        for key in order:
            entry = entries.get(key)
            letters = frozenset() if entry is None or not entry.letter else frozenset({entry.letter})
            typed = infer(
                let[key].expr, types, sizes={}, index_names=letters, indexed=names, trajectory=steps_at, numbers=True
            )
            let[key] = replace(let[key], expr=typed)
            assert typed.type is not None
            own = SCALAR if typed.type.sort.is_index else typed.type
            known = steps_at if entry is not None else types
            if known.setdefault(base_name(key, names), own) != own:
                raise ArgumentError(f"`step` of iterate: {key} is {own}, and its start {known[base_name(key, names)]}.")
    except ExpressionError as error:
        raise ArgumentError(
            f"`step` of iterate: {error.message}" + (f" ({error.hint})" if error.hint else "")
        ) from error
    return {key: let[key] for key in order}


def _type(name: str, value: Tensor | float) -> Type:
    shape = tuple(value.shape) if isinstance(value, Tensor) else ()
    if len(shape) > 2:
        raise ArgumentError(f"`values` of iterate holds numbers, vectors and matrices. Got shape {shape} for {name!r}.")
    return SCALAR if not shape else matrix(shape[0], shape[1] if len(shape) == 2 else 1)


def _environment(
    let: Mapping[str, Formula], values: Mapping[str, Tensor | float], steps: int, bits: int | None
) -> Environment:
    variables: dict[str, Scalar | Matrix] = {}
    for name, value in values.items():
        tensor = torch.as_tensor(value, dtype=torch.float64)
        if tensor.ndim == 0:
            variables[name] = Scalar(sc.exact(float(tensor)), abs(float(tensor)))
        else:
            known = ball(tensor) if bits is None else as_ball(precise(tensor))
            variables[name] = Matrix(known, float(torch.linalg.vector_norm(tensor)))
    return Environment(
        None, {}, variables, let, Notes(), PROVIDERS, last_step=steps, precision=bits, recursions=recursions_in(let)
    )


def _of_formulas(
    step: Mapping[str, str], values: Mapping[str, Tensor | float], steps: int
) -> tuple[list[State], float, bool, str]:
    """Return the states, how far they are from the exact ones, whether that is proven, and why the run breaks off."""
    for text in step.values():
        check_instance(text, str, "step", "iterate", "a mapping of names to formulas")
    let = _typed(step, values)
    env = _environment(let, values, steps, None)
    if sum(torch.as_tensor(value).numel() for value in values.values()) <= SMALL:
        try:
            known = steps_with_bits(env, FLOATS, lambda bits: _environment(let, values, steps, bits))
            env.at_steps.update({at: step_taken(value, at, env) for at, value in known.items()})
        except LimitError:
            env.at_steps.clear()
    estimate_steps(env)
    states: list[State] = [{} for _ in range(steps + 1)]
    radii = [0.0] * (steps + 1)
    for name, k in all_steps(env):
        value = env.at_steps[name, k]
        if isinstance(value, OutsideClaimError):
            return states[:k], max(radii[:k], default=math.inf), not env.notes.estimated, str(value)
        radii[k] = math.hypot(radii[k], radius(value)) * (1 + 2.0**-50)
        states[k][name] = _tensor(value)
    return states, max(radii), not env.notes.estimated, ""


def _tensor(value: Scalar | Matrix) -> Tensor:
    if isinstance(value, Scalar):
        return torch.tensor(float(value.ball.mid()), dtype=torch.float64)
    centre = value.ball.centre
    return centre[:, 0] if centre.shape[1] == 1 else centre


def _record(
    states: list[State],
    first: int,
    detail: str,
    error: float,
    certified: bool,
    watch: Callable[[State], float] | None,
    seconds: float,
) -> TrainingRun:
    """Return the record of a run: all steps as series, at most 64 of them as snapshots."""
    if not states:
        raise ArgumentError(f"`start` of iterate has no value: {detail}.")
    lengths = [{name: _gap(new[name], old.get(name)) for name in new} for old, new in pairwise(states)]
    moved = [math.hypot(*length.values()) for length in lengths]
    watched = [_watched(watch, state) for state in states] if watch is not None else [*moved[:1], *moved] or [0.0]
    count = len(states) - 1
    chosen = sorted({round(k * count / (_SNAPSHOTS - 1)) for k in range(_SNAPSHOTS)})
    path: dict[str, float] = dict.fromkeys(states[-1], 0.0)
    snapshots, total = [], 0.0
    for k, state in enumerate(states):
        if k:
            path = {name: value + lengths[k - 1].get(name, 0.0) for name, value in path.items()}
            total += moved[k - 1]
        if k in chosen:
            snapshots.append(Snapshot(first + k, dict(state), watched[k], dict(path), total))
    at = torch.arange(first, first + count + 1, dtype=torch.float64)
    series = {"loss": Series(at, torch.tensor(watched, dtype=torch.float64))}
    series["gradient_norm"] = Series(at, torch.tensor([*moved[:1], *moved] or [0.0], dtype=torch.float64))
    return TrainingRun(
        method=RECURSION.name,
        step=1.0,
        status=RunStatus.NOT_FINITE if detail else RunStatus.STEPS,
        steps=count,
        end=first + count,
        snapshots=tuple(snapshots),
        series=series,
        forward_iterations=0.0,
        adjoint_iterations=0.0,
        evaluations=count,
        seconds=seconds,
        error=error,
        settings={"certified": certified, "version": __version__},
        detail=detail,
    )


def _watched(watch: Callable[[State], float], state: State) -> float:
    found = watch(state)
    try:
        return float(found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"`watch` of iterate must return a number for each state. Got {found!r:.100}.") from error


def _gap(new: Tensor, old: Tensor | None) -> float:
    return 0.0 if old is None else float(torch.linalg.vector_norm(new - old))
