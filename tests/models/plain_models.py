"""The two shipped models in plain torch, as a paper has them: what the compiled ones are held against."""

from __future__ import annotations

import torch

from ntk_deq.systems import EquilibriumModel


class Plain(EquilibriumModel):
    """A model with the values of another one, of which no more is written than is asked for."""

    def __init__(self, model):
        self._model = model
        self.signature = model.signature

    @classmethod
    def from_variables(cls, values):
        raise NotImplementedError

    def parameters(self):
        return self._model.parameters()

    def readout(self, Z, parameters=None):
        return Z @ {**self.parameters(), **(parameters or {})}["b"]

    def initial_state(self, X):
        return X.new_zeros(*X.shape[:-1], len(self.parameters()["b"]))


class PlainReLU(Plain):
    """Z = relu(gamma Z A + relu(X W))."""

    @property
    def gamma(self):
        return self._model.gamma

    def step(self, Z, X, parameters=None):
        p = {**self.parameters(), **(parameters or {})}
        return torch.relu(self.gamma * Z @ p["A"] + torch.relu(X @ p["W"]))

    def contraction_bound(self, parameters=None):
        A = {**self.parameters(), **(parameters or {})}["A"]
        return self.gamma * torch.linalg.matrix_norm(A, ord=2)


class PlainLinear(Plain):
    """Z = Z W' + X U'."""

    def step(self, Z, X, parameters=None):
        p = {**self.parameters(), **(parameters or {})}
        return Z @ p["W"].T + X @ p["U"].T

    def contraction_bound(self, parameters=None):
        return torch.linalg.matrix_norm({**self.parameters(), **(parameters or {})}["W"], ord=2)
