"""What Ray's errors mean, on one line, with what to do.

Imports nothing of Ray's, so that it can be used before Ray is.
"""

_NO_NODE_HERE = ("Failed to connect to Ray cluster", "Ray expects this IP address")
"""What Ray says where its head is reached and no node of it runs on this machine."""

_NO_AGENT = "No available agent to submit job"
"""What Ray says where no node takes jobs, or none does yet."""

NO_ROOM = "a node's object store and local disk are full: `ray memory` shows what fills it"

_NOT_CREATED = "error raised in its creation task"
"""What Ray says first of an actor that could not be created; the error itself comes last."""

_SECOND_RAY = (
    "a second Ray on this machine takes the ports of the first one's agents: stop one of them, or "
    "start one with other --dashboard-agent-listen-port, --metrics-export-port and "
    "--runtime-env-agent-port"
)


def ray_problem(error: Exception) -> str:
    """What Ray says on one line, unless a token is amiss, which it says in passing at best."""
    if "AuthenticationError" in f"{type(error)} {error.__cause__}":
        return (
            "it requires its token: set RAY_AUTH_MODE=token, and copy the token of its head node "
            "into ~/.ray/auth_token, or name its file by RAY_AUTH_TOKEN_PATH"
        )
    words = " ".join(str(error).split()) or type(error).__name__
    if any(sign in words for sign in _NO_NODE_HERE):
        words += (
            ": is there a Ray node on this machine? Start one with `ray start --address=…`, or "
            "submit a job with `kernelwright submit`"
        )
    if _NO_AGENT in words:
        words += f" (perhaps {_SECOND_RAY})"
    return words


def no_environment(error: Exception) -> str:
    """What to do where Ray's agent does not set up a worker."""
    return (
        f"Ray cannot set up its workers here: {first_line(error)} (perhaps {_SECOND_RAY}; or run "
        "with `--fleet local`)"
    )


def not_created(error: Exception) -> str:
    """Why an actor could not be created; empty where an error says nothing of that."""
    first, *rest = str(error).strip().splitlines() or [""]
    if _NOT_CREATED not in first or not rest:
        return ""
    if not rest[-1].startswith("ModuleNotFoundError"):
        return rest[-1]
    return (
        f"{rest[-1]}: the Python that runs Ray there lacks it; install Kernelwright there, or use "
        "`kernelwright submit`, which sends Kernelwright along"
    )


def lacks_room(error: Exception) -> bool:
    """Whether a node had no room for an object, or a worker of it died of that."""
    return "object store is full" in str(error)


def first_line(error: Exception) -> str:
    """What an error says first, with its type."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
