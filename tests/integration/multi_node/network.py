"""Machines that are network namespaces, joined by a bridge in a namespace of its own. Made in the
namespaces of `run`, with which they end."""
import contextlib
import ctypes
import subprocess

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def command(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


def _enter(file):
    if _libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Network:
    def __init__(self, *names):
        command("ip", "netns", "add", "bridge")
        command("ip", "-n", "bridge", "link", "add", "br0", "type", "bridge")
        command("ip", "-n", "bridge", "link", "set", "br0", "up")
        for number, name in enumerate(names, 1):
            command("ip", "netns", "add", name)
            command("ip", "-n", "bridge", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            command("ip", "-n", "bridge", "link", "set", name, "master", "br0", "up")
            command("ip", "-n", name, "addr", "add", f"10.0.0.{number}/24", "dev", "eth0")
            command("ip", "-n", name, "link", "set", "eth0", "up")
            command("ip", "-n", name, "link", "set", "lo", "up")
        self._addresses = {name: f"10.0.0.{number}" for number, name in enumerate(names, 1)}

    def address(self, name):
        return self._addresses[name]

    @staticmethod
    def prefix(name):
        """What runs a program on that machine, with mounts of its own, as the same process."""
        return ("unshare", "--mount", "nsenter", f"--net=/run/netns/{name}")

    @staticmethod
    @contextlib.contextmanager
    def inside(name):
        """Sockets that this thread makes meanwhile belong to that machine."""
        with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{name}") as there:
            _enter(there)
            try:
                yield
            finally:
                _enter(before)

    @staticmethod
    def cut(name):
        """What goes to and from that machine gets lost."""
        command("ip", "-n", "bridge", "link", "set", name, "down")

    @staticmethod
    def join(name):
        command("ip", "-n", "bridge", "link", "set", name, "up")

    @staticmethod
    def slow(name, rate):
        """Bytes to and from that machine pass at that rate each."""
        for namespace, device in (("bridge", name), (name, "eth0")):
            command("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root",
                    "tbf", "rate", rate, "burst", "32kb", "latency", "500ms")  # fmt: skip

    @staticmethod
    def hurry(name):
        for namespace, device in (("bridge", name), (name, "eth0")):
            command("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")
