"""Judge claims on a Dask cluster: each claim is one task, so the verdicts do not depend on the number of workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.errors import ArgumentError
from ntk_deq.extras import install_line
from ntk_deq.verify.results import ClaimResult
from ntk_deq.verify.runner import Listener, Options, judge

if TYPE_CHECKING:
    from distributed import Client


def judge_on_cluster(
    address: str, claims: Sequence[Claim | IllFormed], options: Options, listener: Listener | None = None
) -> Iterator[ClaimResult]:
    """Return an iterator over the results of the claims, in order, judged by the workers of a Dask cluster.

    Args:
        address: The scheduler's address, or `local` for a cluster on this machine.
        claims: Checked claims.
        options: How; `stop_early` leaves the claims after the first unexpected verdict unjudged.
        listener: Hears of finished claims.

    Raises:
        ArgumentError: The extra `dask` is not installed.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise ArgumentError(f"`--dask` needs the package distributed: {install_line('dask')}") from error
    client = (
        Client(n_workers=2, threads_per_worker=1, dashboard_address=None) if address == "local" else Client(address)
    )
    return _gather(client, claims, options, listener)


def _gather(
    client: Client, claims: Sequence[Claim | IllFormed], options: Options, listener: Listener | None
) -> Iterator[ClaimResult]:
    with client:
        futures = [client.submit(judge, claim, options, pure=False) for claim in claims]
        for future in futures:
            result: ClaimResult = future.result()
            if listener is not None:
                listener.claim_finished(result)
            yield result
            if options.stop_early and not result.as_expected:
                client.cancel(futures)
                return
