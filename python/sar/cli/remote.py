"""Workers on other hosts: an agent there, reached over ssh, starts them and reports what they do."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .channel import ENDED, GREETING, ORDER, OUTPUT, READY, SIGNAL, START, STDOUT, TROUBLE, Channel, ChannelError, Frame
from .hosts import HostSpec
from .lines import Lines
from .workers import DRAIN_SECONDS, TERMINATE_SECONDS, Deliver, Pipe, Worker, in_child


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
        self.host.send(SIGNAL, int(self.rank), str(number).encode())


class _Answers:
    """What an agent says, as the group of all workers reads it."""

    def __init__(self, host: Host) -> None:
        self.host, self.fileno = host, host.channel.fileno

    def read(self) -> bool:
        try:
            for frame in self.host.channel.receive():
                self.host.handle(frame)
        except (ChannelError, ValueError) as error:
            self.host.lost(str(error))
            return False
        return True

    def close(self) -> None:
        """The host closes the stream, when the agent has ended."""


def _readable(stream: _Answers | Pipe) -> bool:
    return bool(select.select([stream], [], [], 0)[0])


class Host:
    """A host, its agent, and the workers there."""

    drain_seconds = 3 * DRAIN_SECONDS  # the agent itself takes two of them

    def __init__(self, spec: HostSpec, ssh: Ssh, order: dict[str, Any]) -> None:
        self.spec, self.ssh = spec, ssh
        self.workers: list[Worker] = []
        self.places: list[dict[str, str]] = []
        """The environment of each worker beside that of the order, to be set before :meth:`start`."""
        self.ready: dict[str, Any] | None = None
        """What the agent answers to the order."""
        self.failure = ""
        """Why the host is of no use."""
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
        assert self.process.stdin is not None and self.process.stdout is not None
        self.channel = Channel(self.process.stdout.fileno(), self.process.stdin.fileno(), GREETING)
        self.said: deque[bytes] = deque(maxlen=20)
        self.noise = Lines(sys.stderr.buffer, f"[{spec.name}] ".encode(), self.said)
        self.errors = Pipe(self.process.stderr, self.noise.feed)
        self.answers = _Answers(self)
        self.readers: list[_Answers | Pipe] = [self.answers, self.errors]
        self.send(ORDER, 0, json.dumps(order).encode())

    def start(self, output: Callable[[Worker], tuple[Deliver, Deliver]]) -> Sequence[_Answers | Pipe]:
        """Has the agent start the workers. All that has to be read of them comes through the channel."""
        for place in self.places:
            worker = _Remote(place["RANK"], self)
            worker.streams = output(worker)
            self.workers.append(worker)
        self.send(START, 0, json.dumps(self.places).encode())
        return self.readers

    def tick(self) -> bool:
        if self.failure:
            return False
        if self.process.poll() is not None:  # what it has passed on is there, also where its child still holds the pipe
            while _readable(self.answers) and self.answers.read():
                pass
            self.lost("the connection has ended")
            return False
        try:
            return self.channel.tick()
        except ChannelError as error:
            self.lost(str(error))
            return False

    def close(self) -> None:
        """Ends the connection, by which the agent ends what still runs, and waits until it has."""
        for worker in self.workers:
            if not worker.poll():
                worker.stop(signal.SIGKILL)
        self.hang_up()
        try:
            self.process.wait(TERMINATE_SECONDS + 3 * DRAIN_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def send(self, kind: bytes, rank: int, payload: bytes) -> None:
        if not self.failure:
            with contextlib.suppress(ChannelError):  # the next reading finds out and tells
                self.channel.send(kind, rank, payload)

    def handle(self, frame: Frame) -> None:
        if self.channel.noise:
            self.noise.feed(self.channel.noise)
            self.noise.feed(b"")
            self.channel.noise = b""
        if frame.kind == READY:
            self.ready = json.loads(frame.payload)
        elif frame.kind == TROUBLE:
            self.failure = frame.payload.decode(errors="replace")
            self.lost(self.failure)
        elif frame.kind in (OUTPUT, ENDED):
            worker = next((w for w in self.workers if int(w.rank) == frame.rank), None)
            if not isinstance(worker, _Remote):
                raise ChannelError(f"its agent tells of rank {frame.rank}, which is not there")
            if frame.kind == OUTPUT:
                worker.streams[frame.payload[:1] != STDOUT](frame.payload[1:])
            elif not worker.poll():  # it may count as lost
                worker.ended(int(frame.payload))

    def lost(self, reason: str) -> None:
        """The agent is gone, or of no use. Its workers count as ended; it ends them when it notices."""
        running = self.ready is None or not all(worker.poll() for worker in self.workers)
        self.failure = self.failure or (self._diagnosis(reason) if running else "its workers have ended")
        self.hang_up()
        for worker in self.workers:
            if not worker.poll():
                worker.why = f"is lost: {self.spec.name}: {self.failure}"
                worker.ended(_LOST)

    def hang_up(self) -> None:
        if self.process.stdin is not None:
            self.failure = self.failure or "the launcher has ended"
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def _diagnosis(self, reason: str) -> str:
        """What ``reason`` comes of, as far as ssh tells."""
        try:
            code = self.process.wait(1.0)  # it follows its connection
        except subprocess.TimeoutExpired:
            return reason
        while not self.errors.source.closed and _readable(self.errors) and self.errors.read():
            pass
        last = b"".join(self.said).decode(errors="replace").strip().rpartition("\n")[2]
        said = f": {last}" if last else ""
        if code < 0:
            return f"{reason}: ssh was killed by signal {-code}"
        if code == 255 and self.ready is None:
            return f"ssh cannot reach it{said}. It must work without a password: ssh {self.spec.name} true"
        if self.ready is None:
            python = f"Is SAR installed in {self.ssh.python}? --remote-python names another"
            return f"no agent of SAR runs there{said}. {python}"
        return f"{reason}{said}"


def connect(specs: Sequence[HostSpec], ssh: Ssh, order: dict[str, Any], port: bool) -> list[Host]:
    """Has an agent on every host make ready for its workers.

    :param order: what all agents are told
    :param port: whether the first one is to find a port for rank 0
    :raises HostError: which hosts are of no use, and why
    """
    hosts: list[Host] = []
    try:
        with selectors.DefaultSelector() as selector:
            for spec in specs:
                own = {"workers": spec.workers, "port": port and not hosts}
                hosts.append(Host(spec, ssh, {**order, **own}))
                for reader in hosts[-1].readers:
                    selector.register(reader, selectors.EVENT_READ, reader)
            end = time.monotonic() + START_SECONDS
            while any(host.ready is None and not host.failure for host in hosts):
                for key, _ in selector.select(0.1):
                    if not key.data.read():
                        selector.unregister(key.fileobj)
                for host in hosts:
                    host.tick()
                    if time.monotonic() > end and host.ready is None:
                        host.lost(f"it has not answered within {START_SECONDS:g} s")
        failures = [f"{host.spec.name}: {host.failure}" for host in hosts if host.failure]
        if failures:
            raise HostError("\n".join(failures))
        return hosts
    except BaseException:
        for host in hosts:
            host.hang_up()
        for host in hosts:
            host.close()
        raise
