"""The passes of the shrinker: sizes, scales, whole tensors, single numbers."""
