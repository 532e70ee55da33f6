"""A tuned kernel as a PyTorch operator that ``torch.compile`` can place in its graphs."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.model import Argument
from workers.loader.signature import Signature

if TYPE_CHECKING:
    from workers.loader.kernel import TunedKernel

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*", re.ASCII)


def register(kernel: "TunedKernel", signature: Signature, name: str) -> Callable[..., None]:
    """Register ``kernel`` as ``name``; see :meth:`workers.loader.kernel.TunedKernel.torch_op`."""
    if not _NAME.fullmatch(name):
        raise SpecError(f"name={name!r}: write namespace::name")
    try:
        import torch
    except ImportError as error:
        raise EnvironmentProblem(f"a PyTorch operator needs torch ({error})") from None
    written = [argument.name for argument in signature.arguments if argument.is_output]
    try:
        operator: Any = torch.library.custom_op(
            name,
            lambda *given, **named: kernel(*given, **named),
            mutates_args=written,
            device_types="cuda",
            schema=schema(signature),
        )
    except RuntimeError as error:
        raise SpecError(f"name={name!r} cannot be registered: {error}") from None
    operator.register_fake(lambda *_, **__: None)
    found: Callable[..., None] = operator
    return found


def schema(signature: Signature) -> str:
    """The operator's schema: arguments in order, then the symbols that follow from none of them.

    Raises:
        SpecError: an argument is a struct, which operators cannot take.
    """
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    parts = [_parameter(argument, letters.__next__) for argument in signature.arguments]
    if named := signature.unknown_symbols():
        types = ("str" if one in signature.types else "SymInt" for one in named)
        parts += ["*", *(f"{type_} {one}" for type_, one in zip(types, named, strict=True))]
    return f"({', '.join(parts)}) -> ()"


def _parameter(argument: Argument, letter: Callable[[], str]) -> str:
    if argument.kind == "struct":
        raise SpecError(f"argument '{argument.name}' is a struct, which PyTorch operators lack")
    if argument.kind == "scalar":
        floating = argument.dtype.startswith(("float", "bfloat"))
        type_ = "float" if floating else "bool" if argument.dtype == "bool" else "SymInt"
        return f"{type_} {argument.name}"
    return (
        f"Tensor({letter()}!) {argument.name}" if argument.is_output else f"Tensor {argument.name}"
    )
