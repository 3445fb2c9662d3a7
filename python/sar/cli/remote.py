"""Workers on other hosts: an agent there, reached over ssh, starts them and reports what they do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from .channel import Channel, ChannelError, carry, open_reader
from .hosts import HostSpec
from .lines import Lines
from .workers import DRAIN_SECONDS, TERMINATE_SECONDS, Deliver, Outputs, Worker, in_child


class HostError(Exception):
    """Hosts on which no workers can be started, and why."""


START_SECONDS = 60.0
"""In which every host must have answered."""

_LOST = 255  # the exit code of workers whose end nobody saw
# A key that is not there must not lead to a question at the terminal; a host that is gone is noticed.
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15")
# What belongs to a host or to a login there, and is not carried from one to another.
_OF_A_HOST = (
    *("DISPLAY", "HOME", "HOST", "HOSTNAME", "LOGNAME", "MAIL", "OLDPWD", "PWD", "SHELL", "SHLVL", "TERM", "TMPDIR"),
    *("USER", "XAUTHORITY", "_"),
)
_OF_A_SESSION = ("SSH_", "XDG_", "DBUS_")


class Ssh(NamedTuple):
    """How hosts are reached."""

    command: Sequence[str] = ("ssh",)
    """The program and options of its own; ``[option ...] host command`` is put behind it."""
    python: str = sys.executable
    """Python on the other hosts."""

    def words(self, host: str) -> list[str]:
        """The command that runs the agent. It holds no secret: other users of either host can see it."""
        path = os.environ.get("PYTHONPATH")
        agent = ["exec", *(["env", f"PYTHONPATH={path}"] if path else []), self.python, "-m", "sar.cli.agent"]
        return [*self.command, *_OPTIONS, host, " ".join(map(shlex.quote, agent))]


def carried(environment: dict[str, str]) -> dict[str, str]:
    """What of an environment goes to other hosts: all but what belongs to this one."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OF_A_HOST and not name.startswith(_OF_A_SESSION)
    }


class _Remote(Worker):
    """A worker that the agent of another host has started."""

    def __init__(self, rank: str, host: Host) -> None:
        super().__init__(rank)
        self.host = host
        self.streams: tuple[Deliver, Deliver]

    def signal(self, number: int) -> None:
        self.host.channel.send(rank=int(self.rank), signal=int(number))


class Host:
    """A host, its agent, and the workers there."""

    drain_seconds = 3 * DRAIN_SECONDS  # the agent itself takes two of them

    def __init__(self, spec: HostSpec, ssh: Ssh) -> None:
        self.spec, self.ssh = spec, ssh
        self.workers: list[Worker] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.places: list[dict[str, str]] = []
        """The environment of each worker beside that of the order, to be set before :meth:`start`."""
        self.ready: dict[str, Any] | None = None
        """What the agent answers to the order."""
        self.failure = ""
        """Why the host is of no use."""
        self.channel: Channel
        self._transport: asyncio.BaseTransport
        self._helpers: list[asyncio.Task[None]] = []
        self._said: deque[bytes] = deque(maxlen=20)
        self._noise = Lines(sys.stderr.buffer, f"[{spec.name}] ".encode(), self._said)
        words = ssh.words(spec.name)
        try:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=in_child(os.getpid()),
                start_new_session=True,  # keys typed at the terminal go to the launcher alone
            )
        except OSError as error:
            raise HostError(f"cannot run {words[0]}: {error.strerror}; --ssh names another program") from None

    async def connect(self, order: dict[str, Any]) -> None:
        """Has an agent make ready for the workers. Then :attr:`ready` is set, or :attr:`failure`."""
        try:
            await asyncio.wait_for(self._agree(order), START_SECONDS)
        except asyncio.TimeoutError:
            self.failure = f"it has not answered within {START_SECONDS:g} s"
        except (ChannelError, AttributeError, KeyError, TypeError, ValueError) as error:
            self.failure = self.failure or await self._diagnosis(str(error))

    async def _agree(self, order: dict[str, Any]) -> None:
        assert self.process.stdin and self.process.stdout and self.process.stderr
        reader, self._transport = await open_reader(self.process.stdout)
        self.channel = Channel(reader, self.process.stdin.fileno())
        errors = carry(self.process.stderr, self._noise.feed)
        self._helpers = [asyncio.create_task(c) for c in (errors, self.channel.keep(), self._watch())]
        self.channel.send(order=order)
        for data in (await self.channel.greeted(), b""):
            self._noise.feed(data)
        message = await self.channel.receive()
        if "ready" not in message:
            self._handle(message)
        self.ready = message["ready"]

    async def _watch(self) -> None:
        """Ends the stream when ssh has ended, also where its child still holds the pipe."""
        while self.process.poll() is None:
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)  # what it has passed on is read
        self._transport.close()

    def start(self, output: Outputs) -> None:
        """Has the agent start the workers. All that they say comes through the channel."""
        for place in self.places:
            worker = _Remote(place["RANK"], self)
            worker.streams = output(worker)
            self.workers.append(worker)
        self.channel.send(start=self.places)
        self.tasks = [asyncio.create_task(self._listen())]

    async def _listen(self) -> None:
        """Hears the agent out. Workers that still run when it is gone, or of no use, count as ended; it ends them when
        it notices."""
        try:
            while True:
                self._handle(await self.channel.receive())
        except (ChannelError, AttributeError, KeyError, TypeError, ValueError) as error:
            reason = str(error)
        running = [worker for worker in self.workers if worker.code is None]
        if running:
            reason = self.failure or await self._diagnosis(reason)
        self._hang_up()
        for worker in running:
            worker.why = f"is lost: {self.spec.name}: {reason}"
            worker.ended(_LOST)

    def _handle(self, message: dict[str, Any]) -> None:
        if "trouble" in message:
            self.failure = str(message["trouble"])
            raise ChannelError(self.failure)
        worker = next((w for w in self.workers if int(w.rank) == message.get("rank")), None)
        if not isinstance(worker, _Remote):
            raise ChannelError(f"its agent tells of rank {message.get('rank')}, which is not there")
        for stream, deliver in zip(("stdout", "stderr"), worker.streams):
            if stream in message:
                deliver(message[stream].encode("latin-1"))
        if "ended" in message:
            worker.ended(int(message["ended"]))

    async def close(self) -> None:
        """Ends the connection, by which the agent ends what still runs, and waits until it has."""
        for worker in self.workers:
            if worker.code is None:
                worker.stop(signal.SIGKILL)
        self._hang_up()
        if not await self._ended(TERMINATE_SECONDS + 3 * DRAIN_SECONDS):
            self.process.kill()
            self.process.wait()
        for task in (*self._helpers, *self.tasks):
            task.cancel()
        if self._helpers:
            self._transport.close()

    async def _ended(self, seconds: float) -> bool:
        """Whether ssh ends within so many seconds."""
        end = asyncio.get_running_loop().time() + seconds
        while self.process.poll() is None and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)
        return self.process.poll() is not None

    def _hang_up(self) -> None:
        if self._helpers:
            self.channel.close()
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]

    async def _diagnosis(self, reason: str) -> str:
        """What ``reason`` comes of, as far as ssh tells."""
        if not await self._ended(1.0):  # it follows its connection
            return reason
        await asyncio.wait(self._helpers[:1], timeout=0.2)  # the rest of its errors
        code = self.process.returncode
        last = b"".join(self._said).decode(errors="replace").strip().rpartition("\n")[2]
        said = f": {last}" if last else ""
        if code < 0:
            return f"{reason}: ssh was killed by signal {-code}"
        if code == 255 and self.ready is None:
            return f"ssh cannot reach it{said}. It must work without a password: ssh {self.spec.name} true"
        if self.ready is None:
            python = f"Is SAR installed in {self.ssh.python}? --remote-python names another"
            return f"no agent of SAR runs there{said}. {python}"
        return f"{reason}{said}"


async def connect(specs: Sequence[HostSpec], ssh: Ssh, order: dict[str, Any], port: bool) -> list[Host]:
    """Has an agent on every host make ready for its workers.

    :param order: what all agents are told
    :param port: whether the first one is to find a port for rank 0
    :raises HostError: which hosts are of no use, and why
    """
    hosts: list[Host] = []
    try:
        for spec in specs:
            hosts.append(Host(spec, ssh))
        own = [{"workers": host.spec.workers, "port": port and host is hosts[0]} for host in hosts]
        await asyncio.gather(*(host.connect({**order, **more}) for host, more in zip(hosts, own)))
        failures = [f"{host.spec.name}: {host.failure}" for host in hosts if host.failure]
        if failures:
            raise HostError("\n".join(failures))
        return hosts
    except BaseException:
        await asyncio.gather(*(host.close() for host in hosts))
        raise
