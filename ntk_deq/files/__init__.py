"""Files from strangers, read without trust, and files of ours, written whole.

inputs.py      regular files only, of a size that fits; archives.py: `.npz` without pickle
yaml.py        strict YAML with the place of every node, read and written; problems.py: what is wrong, gathered
atomic.py      a file is there as a whole or not at all
"""
