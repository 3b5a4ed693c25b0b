"""Training runs: gradient descent and gradient flow through the equilibrium.

    training.py      train, gradient_descent and resume; settings.py: what they are told, checked first
    field.py         loss and gradients at a point, with the solves that carry over; contraction.py: its factor
    descent.py       the loop of descent; flow/: the equation, the integrator, its passes, the run
    record.py        a run: snapshots, series, status; recorders.py, series.py: what is recorded
    storage.py       runs on disk, and checkpoints
    rates.py         measured and instantaneous rates
    recursion.py     recursions: their steps with enough bits, or estimated; iteration.py: the same in Python
    proven/          descent and recursions with a certified distance from the exact run

Names are imported when they are first used, so that a run of descent does not load the integrator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ntk_deq.package import lazy_names

if TYPE_CHECKING:
    from ntk_deq.dynamics.field import (
        FieldPoint as FieldPoint,
        GradientField as GradientField,
        NotFiniteError as NotFiniteError,
        WellPosednessError as WellPosednessError,
    )
    from ntk_deq.dynamics.flow.run import gradient_flow as gradient_flow
    from ntk_deq.dynamics.iteration import iterate as iterate
    from ntk_deq.dynamics.rates import (
        RateFit as RateFit,
        instantaneous_rate as instantaneous_rate,
        measured_rate as measured_rate,
    )
    from ntk_deq.dynamics.record import (
        RunStatus as RunStatus,
        Series as Series,
        Snapshot as Snapshot,
        TrainingRun as TrainingRun,
    )
    from ntk_deq.dynamics.recorders import (
        Observation as Observation,
        Recorder as Recorder,
        every as every,
        logarithmic as logarithmic,
        on_condition as on_condition,
    )
    from ntk_deq.dynamics.storage import (
        CheckpointWarning as CheckpointWarning,
        RecordError as RecordError,
    )
    from ntk_deq.dynamics.training import (
        gradient_descent as gradient_descent,
        resume as resume,
        train as train,
    )

__getattr__, __dir__ = lazy_names(__name__)
