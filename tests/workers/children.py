"""Children that behave and misbehave as requests tell them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from workers.channel import ChannelClosed
from workers.process import serve_as_child


def main() -> None:
    channel, arguments = serve_as_child()
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
            case "hang":
                time.sleep(600)
            case "exit":
                print("result: speedup=99")
                sys.exit(0)
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "shout":
                print("x" * 1_000_000, flush=True)
                channel.send(b"hoarse")
            case "garbage":
                channel._sock.sendall(b"\xff" * 64)
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
            case "grandchild":
                process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                channel.send(str(process.pid).encode())


if __name__ == "__main__":
    main()
