"""Children that behave and misbehave as requests tell them."""

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from workers.channel import Channel, ChannelClosed


def main(channel: Channel, arguments: list[str]) -> None:
    if arguments == ["never ready"]:
        sys.exit(3)
    if arguments and not (place := Path(arguments[0])).exists():
        place.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    channel.send(b"ready")
    hoard = []
    while True:
        try:
            text, blobs = channel.receive(1 << 30)
        except ChannelClosed:
            return
        match text.decode():
            case "echo":
                channel.send(text, blobs)
            case "environment":
                channel.send(json.dumps(dict(os.environ)).encode())
            case "started with":
                channel.send(
                    b"",
                    [
                        Path(f"/proc/{pid}/environ").read_bytes()
                        for pid in (os.getpid(), os.getppid())
                    ],
                )
            case "server":
                channel.send(str(os.getppid()).encode())
            case "descriptors":
                opened = {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}
                channel.send(json.dumps(sorted(opened, key=int)).encode())
            case "random":
                drawn = random.random(), np.random.random(), np.random.default_rng().random()
                channel.send(json.dumps([*drawn, secrets.token_hex(), tempfile.mktemp()]).encode())
            case "hang":
                time.sleep(600)
            case "exit":
                print("result: speedup=99")
                sys.exit(0)
            case "fail":
                raise ValueError("no such thing")
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "shout":
                print("x" * 1_000_000, flush=True)
                channel.send(b"hoarse")
            case "garbage":
                channel.send(b"", [b""] * 5000)
                time.sleep(600)
            case "too much":
                channel.send(b"", [b"x" * 1000])
            case "grow":
                while True:
                    hoard.append(bytearray(os.urandom(1 << 20)) * 8)
            case "detached":
                code = (
                    "import os, time\n"
                    "if os.fork(): os._exit(0)\n"
                    "os.setsid()\n"
                    "if os.fork(): os._exit(0)\n"
                    "print(os.getpid(), flush=True)\n"
                    "time.sleep(600)\n"
                )
                daemon = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
                assert daemon.stdout is not None
                channel.send(daemon.stdout.readline().strip())
            case "forked":
                reader, writer = os.pipe()
                if not os.fork():
                    os.setsid()
                    if not os.fork():
                        os.write(writer, str(os.getpid()).encode())
                        os.closerange(3, 256)
                        time.sleep(600)
                    os._exit(0)
                os.wait()
                channel.send(os.read(reader, 32))
            case "grandchild":
                process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                channel.send(str(process.pid).encode())
