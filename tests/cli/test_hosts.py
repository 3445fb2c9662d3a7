"""``sar launch --hosts``, with a program in place of ssh that runs the command of a host on this one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import sar
from sar.cli import agent, hosts
from tests.cli.conftest import script
from tests.support.command import launch_fresh
from tests.support.processes import is_gone, wait_until

DEADLINE = 120.0

# Like the real one it prints what a login shell might, has an environment and a directory of its own, and is a process
# beside that of the command.
SSH = """\
#!/bin/sh
while :; do case "$1" in -o|-p) shift 2;; -*) shift;; *) break;; esac; done
host=$1; shift
echo "$host $$ $*" >> {folder}/ssh.log
if [ "$host" = unreachable ]; then echo "ssh: connect to host unreachable port 22: No route to host" >&2; exit 255; fi
if [ "$host" = noisy ]; then exec yes; fi
echo "Welcome to $host, it is
printf 'a fine day"
cd /
env -i PATH="$PATH" HOME="/home/of/$host" sh -c "$*"
"""


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    path = tmp_path / "ssh"
    path.write_text(SSH.format(folder=tmp_path).replace("it is\nprintf 'a fine day\"", 'it is"\nprintf "a fine day"'))
    path.chmod(0o755)
    return f"{path} -p 22"


# ---- what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--hosts a:0 x.py", "--hosts: a host needs at least one worker"),
        ("--hosts a:2,,b x.py", "--hosts: '' is no host"),
        ("--hosts a,-oProxyCommand=x x.py", "is no host"),
        ("--hosts a:two x.py", "'a:two' is no host"),
        ("--hosts a --hostfile f x.py", "not both"),
        ("--hosts a --nodes 2 x.py", "leave out --nodes"),
        ("--hosts localhost,b x.py", "--master-addr"),
        ("--hosts a,b --ssh 'x x.py", "--ssh"),
        ("--hosts a,b --ssh /no/such/ssh x.py", "cannot run /no/such/ssh: No such file"),
        ("x.py", "-n N, or hosts"),
        ("-n 2 --nodes 2 x.py", r"--nodes 2 needs --master-addr .* such as --master-addr [\d.]+ --master-port \d+"),
        ("-n 2 --nodes 2 --master-addr a x.py", "--nodes 2 needs --master-addr and --master-port"),
        ("-n 3 x.py", r"SAR_PORT_RANGE=2000-2001 has 2 ports and this machine gets 3 workers"),
        ("--hosts a:2,b:3 x.py", r"SAR_PORT_RANGE=2000-2001 has 2 ports and b gets 3 workers"),
    ],
)
def test_wrong_usage(words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").touch()
    done = launch_fresh(*words.split(), SAR_PORT_RANGE="2000-2001")
    assert done.returncode in (1, 2) and re.search(says, done.stderr), done.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:2,b,a", [("a", 3), ("b", 1)]),
        ("me@a.b-c_d:12", [("me@a.b-c_d", 12)]),
        ("[fe80::1%eth0]:2,[::1]", [("fe80::1%eth0", 2), ("::1", 1)]),
    ],
)
def test_lists_of_hosts(text: str, found: list[tuple[str, int]]) -> None:
    assert hosts.parse(text, 1) == found


def test_files_of_hosts(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# all\n\na slots=2 max_slots=4 # big\nb:3\nme@c\na\n")
    assert hosts.read(str(file), 5) == [("a", 7), ("b", 3), ("me@c", 5)]
    file.write_text("a slots=2\nb 2\n")
    with pytest.raises(ValueError, match="hosts, line 2: '2' is not understood: give slots=N"):
        hosts.read(str(file), 1)
    file.write_text("# none\n")
    with pytest.raises(ValueError, match="names no host"):
        hosts.read(str(file), 1)


# ---- jobs ------------------------------------------------------------------------------------


def test_workers_on_hosts(tmp_path: Path, ssh: str) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SAR_JOB_TOKEN")
    more = ("HOME", "SETTING", "OMP_NUM_THREADS")
    path = script(tmp_path, f"print(*(os.environ[k] for k in {names + more}), os.getcwd(), *sys.argv[1:])")
    words = ["--hosts", "me@a:2,b:1", "--threads", 3, "--log-dir", tmp_path / "logs", "--ssh", ssh]
    done = launch_fresh(*words, path, "x y", SETTING="a'b $c", SAR_PORT_RANGE="21000-21050")
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    port, token = lines[0].split()[6:8]
    assert int(port) in range(21000, 21051) and len(token) == 64
    assert lines == [
        f"[{rank}] {rank} 3 {local} {of} a {port} {token} /home/of/{host} a'b $c 3 {os.getcwd()} x y"
        for rank, local, of, host in [(0, 0, 2, "me@a"), (1, 1, 2, "me@a"), (2, 0, 1, "b")]
    ]
    # what others see of the processes holds no secret
    seen = (tmp_path / "ssh.log").read_text()
    assert token not in seen and "SETTING" not in seen
    assert "[me@a] Welcome to me@a, it is\n[me@a] a fine day\n" in done.stderr
    for rank, line in enumerate(lines):
        assert (tmp_path / "logs" / f"rank-{rank}.log").read_text() == line[4:] + "\n"


def test_a_failure_on_another_host(tmp_path: Path, ssh: str) -> None:
    path = script(
        tmp_path,
        "print('pid', os.getpid(), os.getppid(), flush=True)\n"
        "sys.stderr.write('no\\0end' * 99 + '\\0'); sys.stderr.flush()\n"
        "if rank == 2: time.sleep(0.5); raise ValueError('of rank 2')\n"
        "time.sleep(300)",
    )
    done = launch_fresh("--hosts", "a:1,b:2", "--grace", 0.2, "--ssh", ssh, path)
    assert done.returncode == 1
    closing = done.stderr[done.stderr.rindex("sar launch: ") :]
    assert closing.startswith("sar launch: rank 2 ended with exit code 1; ranks 0, 1 were stopped")
    assert "    ValueError: of rank 2" in closing
    assert "[2] " + "no\0end" * 99 + "\0Traceback" in done.stderr
    pids = [int(pid) for line in done.stdout.splitlines() for pid in line.split()[2:]]
    assert len(pids) == 6 and all(map(is_gone, pids))


def test_hosts_of_no_use(tmp_path: Path, ssh: str) -> None:
    path = script(tmp_path, "print('started')")
    done = launch_fresh("--hosts", "a,unreachable:30", "--ssh", ssh, path)
    assert done.returncode == 1 and "started" not in done.stdout and "Traceback" not in done.stderr
    assert len((tmp_path / "ssh.log").read_text().splitlines()) == 9  # no more than are made at a time
    assert "unreachable: ssh cannot reach it: ssh: connect to host unreachable port 22: No route" in done.stderr
    done = launch_fresh("--hosts", "noisy", "--ssh", ssh, path)
    assert done.returncode == 1 and "noisy: something else than the agent answers" in done.stderr
    done = launch_fresh("--hosts", "a", "--remote-python", "/no/python", "--ssh", ssh, path)
    assert done.returncode == 1 and re.search("a: no agent of SAR .*/no/python.*--remote-python", done.stderr)
    done = launch_fresh("--hosts", "a", "--directory", "/no/directory", "--ssh", ssh, path)
    assert done.returncode == 1 and "a: cannot work in /no/directory: No such file" in done.stderr
    with mock.patch.object(sar, "__version__", "9.9"):
        done = launch_fresh("--hosts", "a", "--ssh", ssh, path)
    assert done.returncode == 1 and f"a: SAR {sar.__version__} is installed here and 9.9 at the launcher" in done.stderr


def test_how_a_worker_was_killed(tmp_path: Path, ssh: str) -> None:
    path = script(tmp_path, "os.kill(os.getpid(), signal.SIGUSR1)")
    done = launch_fresh("--hosts", "a:12", "--grace", 9, "--ssh", ssh, path)
    assert done.returncode == 128 + signal.SIGUSR1
    assert f"was killed by signal {signal.SIGUSR1:d} (User defined signal 1)" in done.stderr


def test_a_launcher_that_is_silent() -> None:
    read, write = os.pipe()
    os.write(write, b"one\n\ntwo\nthr")
    with mock.patch.object(agent, "_SILENT_SECONDS", 0.01):
        assert list(agent.lines(read)) == [b"one", b"two"]
    os.close(read)
    os.close(write)


SLOW = (
    "child = subprocess.Popen(['sleep', '300'])\n"
    "def end(number, frame): open(os.environ['FOLDER'] + f'/signal{rank}', 'w').write(str(number)); sys.exit(1)\n"
    "signal.signal(signal.SIGTERM, end)\n"
    "file = os.environ['FOLDER'] + f'/life{os.environ[\"SAR_RESTART_COUNT\"]}.{rank}'\n"
    "open(file + '.tmp', 'w').write(f'{os.getpid()} {child.pid} {os.getppid()}')\n"
    "os.rename(file + '.tmp', file + '.pid')\n"
)


def pids(folder: Path, life: int, count: int) -> list[int]:
    """Of all workers of a life, their children and their agents, when all are there."""
    wait_until(lambda: len(list(folder.glob(f"life{life}.*.pid"))) == count)
    return [int(pid) for file in folder.glob(f"life{life}.*.pid") for pid in file.read_text().split()]


def launcher(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sar", "launch", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FOLDER": str(folder)},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_launcher(tmp_path: Path, ssh: str, number: signal.Signals) -> None:
    path = script(tmp_path, SLOW + "time.sleep(300)")
    job = launcher(tmp_path, "--hosts", "a:1,b:1", "--grace", "5", "--ssh", ssh, str(path))
    try:
        all_of_it = pids(tmp_path, 0, 2)
        job.send_signal(number)
        _, errors = job.communicate(timeout=DEADLINE)
        assert job.returncode == (128 + number if number == signal.SIGTERM else -number), errors
        wait_until(lambda: all(map(is_gone, all_of_it)))
        # either way the workers were asked first
        assert [(tmp_path / f"signal{rank}").read_text() for rank in range(2)] == [str(int(signal.SIGTERM))] * 2
    finally:
        job.kill()
        job.communicate()


def test_a_killed_ssh_ends_the_workers_and_they_start_again(tmp_path: Path, ssh: str) -> None:
    path = script(tmp_path, SLOW + "if os.environ['SAR_RESTART_COUNT'] == '0': time.sleep(300)\nchild.kill()")
    words = ["--hosts", "a:1,b:2", "--grace", "0.2", "--max-restarts", "1", "--ssh", ssh, str(path)]
    job = launcher(tmp_path, *words)
    try:
        first = pids(tmp_path, 0, 3)
        connections = (tmp_path / "ssh.log").read_text().splitlines()
        victim = next(line for line in connections if line.startswith("b "))
        os.kill(int(victim.split()[1]), signal.SIGKILL)
        _, errors = job.communicate(timeout=DEADLINE)
        assert job.returncode == 0, errors
        assert re.search("rank 1 is lost: b: the connection has ended: ssh was killed by signal 9", errors)
        assert "restart 1 of 1" in errors
        wait_until(lambda: all(map(is_gone, first)))
        assert len((tmp_path / "ssh.log").read_text().splitlines()) == 6
        assert all(map(is_gone, pids(tmp_path, 1, 3)))
    finally:
        job.kill()
        job.communicate()
