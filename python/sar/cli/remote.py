"""Workers on other hosts: an agent there, reached over ssh, starts each of them. Their output is that of ssh."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

from .agent import ENDED, GREETING
from .hosts import HostSpec
from .lines import Lines
from .workers import Deliver, Outputs, Worker, ends_within, hand_on, spawn


class HostError(Exception):
    """Hosts on which no workers can be started, and why."""


START_SECONDS = 60.0
"""In which every host must have answered."""

_AT_ONCE = 8  # connections to a host that sshd has not accepted yet: from ten on it may drop them (MaxStartups)
_LIFE_SECONDS = 5.0  # between two signs of life
_LOST = 255  # the exit code of workers whose end nobody saw
_LONGEST_END = 32  # bytes of what an agent says last
# A key that is not there must not lead to a question at the terminal. A host that is not heard of for a minute is lost.
_OPTIONS = (
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
)
# What belongs to a host or to a login there, and is not carried from one to another.
_OF_A_HOST = (
    *("DISPLAY", "HOME", "HOST", "HOSTNAME", "LOGNAME", "MAIL", "OLDPWD", "PWD", "SHELL", "SHLVL", "TERM", "TMPDIR"),
    *("USER", "XAUTHORITY", "_"),
)
_OF_A_SESSION = ("SSH_", "XDG_", "DBUS_")


def agent_command(ssh: Sequence[str], host: str, python: str) -> list[str]:
    """The command that runs an agent on a host. It holds no secret: other users of either host can see it."""
    path = os.environ.get("PYTHONPATH")
    agent = ["exec", *(["env", f"PYTHONPATH={path}"] if path else []), python, "-m", "sar.cli.agent"]
    return [*ssh, *_OPTIONS, host, " ".join(map(shlex.quote, agent))]


def carried(environment: dict[str, str]) -> dict[str, str]:
    """What of an environment goes to other hosts: all but what belongs to this one."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OF_A_HOST and not name.startswith(_OF_A_SESSION)
    }


class Remote(Worker):
    """A worker of another host. Its process is that of ssh."""

    def __init__(self, rank: int, local_rank: int, host: HostSpec) -> None:
        super().__init__(str(rank))
        self.local_rank, self.host = local_rank, host
        self.place: dict[str, str] = {}
        """The environment of the worker beside that of the order, to be set before :meth:`start`."""
        self._said: deque[bytes] = deque(maxlen=20)
        # what comes before the worker; of all connections to a host, the first shows it
        noise = Lines(sys.stderr.buffer, f"[{host.name}] ".encode(), self._said) if not local_rank else None
        self._deliver: Deliver = noise.feed if noise else self._said.append
        self._to_agent: asyncio.WriteTransport | None = None
        self._reader: asyncio.StreamReader

    async def connect(self, ssh: Sequence[str], order: dict[str, Any]) -> int:
        """Has an agent make ready for the worker.

        :param ssh: the program and options of its own; ``[option ...] host command`` is put behind it
        :returns: a port that is free there, if the order asks for one
        :raises HostError: it cannot
        """
        python, pipe = order["command"][0], subprocess.PIPE
        try:
            self.process = spawn(agent_command(ssh, self.host.name, python), stdin=pipe, stdout=pipe, stderr=pipe)
        except OSError as error:
            raise HostError(f"cannot run {ssh[0]}: {error.strerror}; --ssh names another program") from None
        try:
            answer = await asyncio.wait_for(self._agree(self.process, order), START_SECONDS)
            trouble = answer.get("trouble")
        except asyncio.TimeoutError:
            trouble = f"it has not answered within {START_SECONDS:g} s"
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
            trouble = await self._no_agent(self.process, python)
        if trouble:
            raise HostError(f"{self.host.name}: {trouble}")
        return int(answer["port"])

    async def _agree(self, process: subprocess.Popen[bytes], order: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin and process.stdout and process.stderr
        self._to_agent, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        self.pipes.append(self._to_agent)
        self._send(json.dumps(order))
        errors = await self.read(process.stderr)
        self.tasks = [asyncio.create_task(self._errors(errors)), asyncio.create_task(self._live())]
        self._reader = await self.read(process.stdout)
        noise = await self._reader.readuntil(GREETING)
        for data in (noise[: -len(GREETING)], b""):
            self._deliver(data)
        return json.loads(await self._reader.readuntil(b"\n"))

    def _send(self, line: str) -> None:
        if self._to_agent and not self._to_agent.is_closing():
            self._to_agent.write(line.encode() + b"\n")

    async def _live(self) -> None:
        """Tells the agent again and again that the launcher lives."""
        while not self.over.done():
            self._send("")
            await asyncio.wait([self.over], timeout=_LIFE_SECONDS)

    async def _no_agent(self, process: subprocess.Popen[bytes], python: str) -> str:
        """Why no agent has answered, as far as ssh tells."""
        if not await ends_within(1.0, process):
            return "something else than the agent answers"
        await asyncio.wait(self.tasks[:1], timeout=0.2)  # the rest of its errors
        code = process.returncode
        last = b"".join(self._said).decode(errors="replace").strip().rpartition("\n")[2]
        said = f": {last}" if last else ""
        if code < 0:
            return f"ssh was killed by signal {-code}"
        if code == 255:
            return f"ssh cannot reach it{said}. It must work without a password: ssh {self.host.name} true"
        return f"no agent of SAR runs there{said}. Is SAR installed in {python}? --remote-python names another"

    async def start(self, output: Outputs) -> None:
        """Has the agent start the worker."""
        out, self._deliver = output(self)
        self._send(json.dumps(self.place))
        self.tasks.append(asyncio.create_task(hand_on(self._reader, out)))

    async def _errors(self, reader: asyncio.StreamReader) -> None:
        """Delivers what comes on standard error, and notes what the agent says last."""
        held = b""
        while data := held + await reader.read(1 << 16):
            at = data.rfind(b"\0", -_LONGEST_END) if data != held else -1
            data, held = (data, b"") if at < 0 else (data[:at], data[at:])
            self._deliver(data)
            if held.startswith(ENDED) and held.endswith(b"\n"):
                self.ended(int(held[len(ENDED) :]))
                break
        self._deliver(b"")

    def signal(self, number: int) -> None:
        self._send(str(int(number)))

    def poll(self) -> None:
        """Has the worker count as ended if ssh has, and the agent has not said how."""
        if self.code is None and self.process and self.process.poll() is not None:
            self.tasks.append(asyncio.create_task(self._lose(self.process)))

    async def _lose(self, process: subprocess.Popen[bytes]) -> None:
        await asyncio.wait(self.tasks[:1], timeout=0.5)  # all that has come is read
        reason = "the connection has ended"
        if process.returncode < 0:
            reason += f": ssh was killed by signal {-process.returncode}"
        elif process.returncode == 255 and self.errors:
            reason += f": {self.errors[-1].decode(errors='replace').strip()}"
        if self._to_agent:
            self._to_agent.close()  # by which the agent ends the worker, if only ssh was killed
        self.why = self.why or f"is lost: {self.host.name}: {reason}"
        self.ended(_LOST)


async def connect(specs: Sequence[HostSpec], ssh: Sequence[str], order: dict[str, Any]) -> tuple[list[Remote], int]:
    """Has agents make ready for the workers of all hosts.

    :param order: what all agents are told; ``port``: whether the first one is to find a port for rank 0
    :returns: the workers, and that port
    :raises HostError: which hosts are of no use, and why
    """
    gates = {spec: asyncio.Semaphore(_AT_ONCE) for spec in specs}
    refused: dict[HostSpec, HostError] = {}
    places = enumerate((spec, k) for spec in specs for k in range(spec.workers))
    workers = [Remote(rank, k, spec) for rank, (spec, k) in places]

    async def one(worker: Remote) -> int:
        own = {"local_rank": worker.local_rank, "workers": worker.host.workers}
        own["port"] = order["port"] and worker.rank == "0"
        async with gates[worker.host]:
            if worker.host not in refused:
                try:
                    return await worker.connect(ssh, {**order, **own})
                except HostError as error:
                    refused[worker.host] = error
            return 0

    try:
        ports = await asyncio.gather(*map(one, workers))
        if refused:
            raise HostError("\n".join(map(str, refused.values())))
        return workers, ports[0]
    except BaseException:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*(worker.close() for worker in workers))
        raise
