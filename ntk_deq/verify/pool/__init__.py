"""Claims judged in processes of their own, which can be ended: by a limit, by the user, by the death of the run.

`workers` is the side of the run: it hands out claims, hears of results, watches time and memory, and ends processes.
`worker` is what happens inside one of them. `process` makes and ends one, and `memory` says what there is and what one
holds.
"""
