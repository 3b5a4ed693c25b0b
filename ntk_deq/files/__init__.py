"""Files from strangers: strict YAML, archives without pickle, positions and problems, atomic writing."""
