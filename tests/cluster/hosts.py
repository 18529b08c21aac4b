"""Hosts on this machine, each with its own network, processes, mounts and host name, joined by a bridge.

Nothing of them is outside: the bridge, the hosts and all that runs in them live in the namespaces of one "rack", whose
first process reads from a pipe that this one holds. When this process ends, however it ends, so does the rack, and the
kernel takes the rest away: the hosts' processes, their interfaces and their mounts.

Needs root, util-linux, iproute2 and OpenSSH's server.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NETWORK = "10.77.0."
NAMES = ("alder", "birch", "cedar", "dogwood")
TOOLS = ("unshare", "nsenter", "ip", "mount", "sshd", "ssh", "ssh-keygen", "pdsh")
# sshd is found by root alone.
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
ENDLESS = "echo ready; exec cat"  # until its input is closed


def missing():
    """Return why there can be no hosts here, or None."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "hosts on one machine need root, which makes their networks; use sudo, or a container that allows it"
    if absent := [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]:
        return f"hosts on one machine need {', '.join(absent)} (Debian: apt-get install openssh-server pdsh iproute2)"
    made = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "ip", "link", "add", "br0", "type", "bridge"]
    tried = subprocess.run(made, env={**os.environ, "PATH": PATH}, capture_output=True, text=True, check=False)
    return f"namespaces are not allowed here: {tried.stderr.strip()}" if tried.returncode else None


class Host:
    """One host: where commands run, and what can be done to it."""

    def __init__(self, rack, name, number):
        self.rack, self.name, self.address = rack, name, f"{NETWORK}{number + 1}"
        self.port = f"port{number}"
        self._init, self.pid = _first_process(rack.inside("--net", "--mount", "--pid"))
        self._cable = self._server = None
        self._plug_in(number)
        self._dress()

    def _plug_in(self, number):
        rack = self.rack
        rack.switch(f"ip link add name {self.port} type veth peer name eth{number + 1}")
        rack.switch(f"ip link set {self.port} master br0 up")
        rack.switch(f"ip link set eth{number + 1} netns {self.pid}")
        self.configure(
            f"ip link set eth{number + 1} name eth0; ip addr add {self.address}/24 dev eth0; ip link set lo up; ip link set eth0 up"
        )

    def _dress(self):
        """Give it a name, its table of names, and an sshd that lets the rack's key in."""
        folder = self.rack.folder / self.name
        folder.mkdir()
        _call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key")])
        (folder / "sshd_config").write_text(
            f"HostKey {folder / 'host_key'}\nAuthorizedKeysFile {self.rack.folder / 'login_key.pub'}\n"
            "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nPidFile none\n",
            encoding="utf-8",
        )
        self.configure(f"hostname {self.name}; mount -t tmpfs none /run; mkdir -p /run/sshd")
        self.bind(self.rack.folder / "hosts", "/etc/hosts")
        self.bind(self.rack.folder / "passwd", "/etc/passwd")
        self.bind(self.rack.folder / "ssh_config", "/etc/ssh/ssh_config")
        sshd = shutil.which("sshd", path=PATH)
        self._server = self.start([sshd, "-D", "-f", str(folder / "sshd_config")], stderr=subprocess.DEVNULL)

    def inside(self, command, *, cwd=None, environment=None):
        """Return the command line that runs ``command`` (a list) on this host."""
        exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in (environment or {}).items())
        shell = f"cd {shlex.quote(str(cwd or ROOT))}; {exports}exec {shlex.join(map(str, command))}"
        return ["nsenter", f"--target={self.pid}", "--net", "--uts", "--mount", "--pid", "sh", "-c", shell]

    def start(self, command, *, cwd=None, environment=None, **popen):
        """Start a command on this host; see `subprocess.Popen`."""
        return subprocess.Popen(
            self.inside(command, cwd=cwd, environment=environment), stdin=subprocess.DEVNULL, env=_environment(), **popen
        )

    def configure(self, shell):
        """Run a line of shell on this host, which must succeed."""
        _call(self.inside(["sh", "-e", "-c", shell], cwd="/"))

    def bind(self, source, target):
        """Have this host alone see ``source`` (a file or folder) at ``target``."""
        self.configure(f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(target))}")

    def unbind(self, target):
        self.configure(f"umount {shlex.quote(str(target))}")

    def processes(self):
        """Return what runs on this host beside its first process and sshd."""
        wanted = _processes_of(self.pid)
        kept = {self.pid} | ({child.pid for child in psutil.Process(self._server.pid).children()} if self._server else set())
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if _processes_of(process.pid) == wanted and process.pid not in kept:
                    found.append(process)
        return found

    def ranks(self):
        """Return the training processes of this host."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("RANK") is not None and any("pretrain.py" in part for part in process.cmdline()[:4]):
                    found.append(process)
        return found

    def kill(self):
        """Kill everything that runs on this host, as when it loses its power."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)

    def unplug(self):
        """Cut its link: frames are lost in both directions, and nobody is told."""
        self.rack.switch(f"ip link set {self.port} down")

    def plug_in_again(self):
        self.rack.switch(f"ip link set {self.port} up")

    @contextlib.contextmanager
    def slow(self, delay_ms):
        """Hold back every frame to and from this host."""
        rack, far, near = self.rack, f"far{self.port[4:]}", f"near{self.port[4:]}"
        script = [sys.executable, str(HERE / "slow_cable.py")]
        rack.switch(f"ip link add name {near} type veth peer name {far}")
        rack.switch(f"ip link set {self.port} nomaster; ip link set {far} master br0 up; ip link set {near} up")
        rack.switch(shlex.join([*script, "--without-offload", far]))
        self.configure(shlex.join([*script, "--without-offload", "eth0"]))
        command = [*rack.inside("--net"), *script, self.port, near, str(delay_ms)]
        cable = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=_environment())
        try:
            assert cable.stdout.readline() == "plugged in\n"
            yield
        finally:
            cable.kill()
            cable.wait()
            rack.switch(f"ip link del {near}; ip link set {self.port} master br0")


class Rack:
    """Hosts on one bridge; a context manager. ``folder`` takes keys and settings and is the caller's to delete."""

    def __init__(self, folder, count=2):
        self.folder = Path(folder)
        self.names = NAMES[:count]
        self.hosts = []

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        _call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "login_key")])
        table = "".join(f"{NETWORK}{number + 1} {name}\n" for number, name in enumerate(self.names))
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + table, encoding="utf-8")
        (self.folder / "ssh_config").write_text(
            f"Host *\n  IdentityFile {self.folder / 'login_key'}\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
            "  LogLevel ERROR\n",
            encoding="utf-8",
        )
        # Logging in is not to depend on what root's own shell does then.
        others = [line for line in Path("/etc/passwd").read_text(encoding="utf-8").splitlines() if not line.startswith("root:")]
        (self.folder / "home").mkdir()
        passwd = [f"root:x:0:0:root:{self.folder / 'home'}:/bin/sh", *others]
        (self.folder / "passwd").write_text("\n".join(passwd) + "\n", encoding="utf-8")
        self._init, self.pid = _first_process([])
        try:
            self.switch("ip link add name br0 type bridge; ip link set br0 up; ip link set lo up")
            self.hosts = [Host(self, name, number) for number, name in enumerate(self.names)]
            for host in self.hosts:
                self._wait_for_ssh(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._init.stdin.close()  # its first process ends, and takes all others along
        self._init.wait(timeout=30)
        for host in self.hosts:
            host._init.wait(timeout=30)
            host._server.wait(timeout=30)

    def __iter__(self):
        return iter(self.hosts)

    def __getitem__(self, number):
        return self.hosts[number]

    def inside(self, *namespaces):
        return ["nsenter", f"--target={self.pid}", *namespaces]

    def switch(self, shell):
        """Run a line of shell in the network of the bridge, which must succeed."""
        _call([*self.inside("--net"), "sh", "-e", "-c", shell])

    def _wait_for_ssh(self, host):
        until = time.monotonic() + 30
        while subprocess.run(
            self.hosts[0].inside(["ssh", host.name, "true"]), env=_environment(), capture_output=True, check=False
        ).returncode:
            assert time.monotonic() < until, f"sshd of {host.name} does not answer"
            time.sleep(0.2)


def _processes_of(pid):
    """Return which namespace of processes a process is in."""
    return Path(f"/proc/{pid}/ns/pid").stat().st_ino


def _first_process(enter):
    """Start the first process of new namespaces, inside of those of ``enter``; return what holds its input, and its id."""
    command = [*enter, "unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", ENDLESS]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment())
    assert holder.stdout.readline() == b"ready\n"
    return holder, psutil.Process(holder.pid).children(recursive=True)[-1].pid


def _call(command):
    done = subprocess.run(command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {done.stdout}{done.stderr}")


def _environment():
    return {**os.environ, "PATH": PATH}


if __name__ == "__main__":
    if reason := missing():
        print(f"error: {reason}.", file=sys.stderr)
        sys.exit(2)
