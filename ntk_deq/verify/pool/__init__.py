"""Claims judged in processes of their own, which can be ended: by a limit, by the user, by the death of the run.

`workers` is the side of the run: it hands out claims, hears of results, watches time and memory, and ends processes.
`worker` makes one and is what happens inside; it says how much memory there is and what a process holds.
"""
