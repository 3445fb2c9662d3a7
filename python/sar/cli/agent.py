"""The agent of ``sar launch`` on another host, started there over ssh: runs the workers of that host.

It decides nothing: it passes on output and signals, and reports how workers end. When the launcher, or the connection
to it, is gone, it ends its workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from functools import partial
from typing import Any

import sar
from sar.distributed.network import free_port

from .binding import seats
from .channel import GREETING, PATIENT_SECONDS, Channel, ChannelError, open_reader
from .workers import DRAIN_SECONDS, TERMINATE_SECONDS, Deliver, Local, Worker

_PATIENCE = 300.0  # for the launcher to say what to do: it waits for the slowest host


async def serve(source: int, target: int) -> int:
    """Does what the launcher says, and returns the exit code."""
    reader, _ = await open_reader(open(source, "rb", buffering=0))  # noqa: SIM115
    channel = Channel(reader, target, PATIENT_SECONDS)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        error = ChannelError(f"the agent was stopped by signal {int(number)}")
        asyncio.get_running_loop().add_signal_handler(number, reader.set_exception, error)
    keep = asyncio.create_task(channel.keep())
    try:
        channel.write(GREETING)
        order = await _content(channel, "order")
        prepare(order)
        own = seats(order["bind"], order["workers"], order["threads"])
        port = free_port() if order["port"] else 0
        channel.send(ready={"port": port})
        places = await _content(channel, "start")
        await run(channel, Local(order["command"], [{**os.environ, **place} for place in places], own))
        return 0
    except (ChannelError, ValueError, OSError) as error:
        channel.send(trouble=str(error))
        return 1
    finally:
        keep.cancel()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(channel.flushed(0), DRAIN_SECONDS)


async def _content(channel: Channel, name: str) -> Any:
    """What the next message holds, which is of this name."""
    try:
        message = await asyncio.wait_for(channel.receive(), _PATIENCE)
    except asyncio.TimeoutError:
        raise ChannelError("the launcher has not said what to do") from None
    if name not in message:
        raise ChannelError(f"the launcher says {', '.join(message)} in place of {name}")
    return message[name]


def prepare(order: dict[str, Any]) -> None:
    """Goes where the workers are to work, and sets their environment.

    :raises ValueError: something is not here as the launcher expects it
    """
    if order["version"] != sar.__version__:
        raise ValueError(
            f"SAR {sar.__version__} is installed here and {order['version']} at the launcher: "
            "install one version on every host"
        )
    try:
        os.chdir(order["directory"])
    except OSError as error:
        raise ValueError(
            f"cannot work in {order['directory']}: {error.strerror}. Start where all hosts have the same "
            "directory, such as on a shared file system, or name one with --directory"
        ) from None
    os.environ.update(order["environment"])


async def run(channel: Channel, site: Local) -> None:
    """Runs the workers until all have ended.

    :raises ChannelError: the launcher was gone before
    """

    def output(worker: Worker) -> tuple[Deliver, Deliver]:
        def send(stream: str, data: bytes) -> None:
            if data:
                channel.send(rank=int(worker.rank), **{stream: data.decode("latin-1")})

        return partial(send, "stdout"), partial(send, "stderr")

    async def obey() -> None:
        while True:
            message = await channel.receive()
            for worker in site.workers:
                if int(worker.rank) == message.get("rank"):
                    worker.signal(message["signal"])

    def tell(worker: Worker, _: object) -> None:
        channel.send(rank=int(worker.rank), ended=worker.code)

    obeying = asyncio.create_task(obey())
    try:
        site.start(output, channel.flushed)
        for worker in site.workers:
            worker.over.add_done_callback(partial(tell, worker))
        over = asyncio.gather(*(worker.over for worker in site.workers))
        first: list[asyncio.Future[Any]] = [obeying, over]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not over.done():
            for worker in site.workers:
                worker.signal(signal.SIGTERM)
            await asyncio.wait({over}, timeout=TERMINATE_SECONDS)
            await obeying  # raises why
        await asyncio.wait(site.tasks, timeout=DRAIN_SECONDS)
    finally:
        obeying.cancel()
        await asyncio.gather(obeying, site.close(), return_exceptions=True)


def main() -> int:
    # What anything here prints must not get among the messages.
    source, target = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return asyncio.run(serve(source, target))


if __name__ == "__main__":
    sys.exit(main())
