"""A model's class and its declaration are held against each other before a claim about its training is judged."""

import dataclasses

from training_harness import DESCENT, FILE

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.language import declaration as registry
from ntk_deq.language.declaration import LINEAR_IMPLICIT
from ntk_deq.systems import LinearImplicit
from ntk_deq.verify.runner import Options, judge


class Doubled(LinearImplicit):
    """Predicts twice what it declares."""

    signature = dataclasses.replace(LINEAR_IMPLICIT, name="doubled", implementation=f"{__name__}:Doubled")

    def predictions(self, Z, X, parameters=None):
        return 2 * super().predictions(Z, X, parameters)

    def single_layer(self):
        return None


class Faithful(LinearImplicit):
    """Predicts what it declares."""

    signature = dataclasses.replace(LINEAR_IMPLICIT, name="faithful", implementation=f"{__name__}:Faithful")


def judged(tmp_path, monkeypatch, cls, conclude):
    signature = cls.signature
    monkeypatch.setitem(registry._REGISTRY, signature.name, signature)
    text = FILE.format(
        setting="linear", given="{}", let="{}", assume="{}", run=DESCENT.replace("1e-4", "0.9"), conclude=conclude
    ).replace("model: linear-implicit", f"model: {signature.name}")
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    (claim,) = load_suite(str(path)).claims
    return judge(claim, Options(search=40))


def test_a_class_that_predicts_something_else_is_not_judged(tmp_path, monkeypatch):
    result = judged(tmp_path, monkeypatch, Doubled, "L[k] <= 2*L[0] for all k")
    assert result.verdict is Verdict.UNDECIDED
    assert "does not predict what the model doubled declares" in str(result)


def test_a_faithful_class_is_judged(tmp_path, monkeypatch):
    result = judged(tmp_path, monkeypatch, Faithful, "L[k] <= 2*L[0] for all k")
    assert result.verdict is Verdict.HOLDS
