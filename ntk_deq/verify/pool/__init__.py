"""Claims judged in processes of their own, which can be ended: by a limit, by the user, by the death of the run.

`workers` is the side of the run: it hands out claims, hears of results, watches time and memory, and ends processes.
`worker` makes one and is what happens inside; it says how much memory there is and what a process holds. Here: the
same on a Dask cluster.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import torch

from ntk_deq.claims.claim import Claim, IllFormed, Verdict
from ntk_deq.errors import ArgumentError
from ntk_deq.package import install_line
from ntk_deq.verify.pool.workers import LIVES
from ntk_deq.verify.results import ClaimResult
from ntk_deq.verify.runner import Listener, Options, bare_result, judge

if TYPE_CHECKING:
    from distributed import Client


def judge_on_cluster(
    address: str,
    claims: Sequence[Claim | IllFormed],
    options: Options,
    listener: Listener | None = None,
    *,
    jobs: int = 2,
    threads: int = 1,
) -> Generator[ClaimResult, None, None]:
    """Return an iterator over the results of the claims, in order, judged by the workers of a Dask cluster.

    Limits are those that a judgement keeps by itself: an operation that outlasts one is not ended. A claim whose worker
    dies is judged again; one of which as many workers die as the cluster allows, two on this machine, is an error.

    Args:
        address: The scheduler's address, or `local` for a cluster on this machine.
        claims: Checked claims.
        options: How; `stop_early` leaves the claims after the first unexpected verdict unjudged.
        listener: Hears of finished claims.
        jobs: Workers of a cluster on this machine.
        threads: Threads of one matrix product.

    Raises:
        ArgumentError: The extra `dask` is not installed.
    """
    try:
        import dask
        from distributed import Client
    except ModuleNotFoundError as error:
        raise ArgumentError(f"`--dask` needs the package distributed: {install_line('dask')}") from error
    if address != "local":
        return _gather(Client(address), claims, options, listener, threads)
    with dask.config.set({"distributed.scheduler.allowed-failures": LIVES - 1}):
        client = Client(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
    return _gather(client, claims, options, listener, threads)


def _gather(
    client: Client, claims: Sequence[Claim | IllFormed], options: Options, listener: Listener | None, threads: int
) -> Generator[ClaimResult, None, None]:
    from distributed import KilledWorker

    with client:
        futures = [client.submit(_judged, claim, options, threads, pure=False) for claim in claims]
        for claim, future in zip(claims, futures, strict=True):
            try:
                result: ClaimResult = future.result()
            except KilledWorker:
                result = bare_result(claim, options, Verdict.ERROR, "its workers on the cluster died")
            if listener is not None:
                listener.claim_finished(result)
            yield result
            if options.stop_early and not result.as_expected:
                client.cancel(futures)
                return


def _judged(claim: Claim | IllFormed, options: Options, threads: int) -> ClaimResult:
    torch.set_num_threads(threads)
    return judge(claim, options)
