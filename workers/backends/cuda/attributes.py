"""Launches as their steps say; those with attributes through ``cuLaunchKernelEx``.

CuPy does not wrap that. Owns the layout of the driver's structures (``cuda.h``: ``CUlaunchConfig``,
``CUlaunchAttribute``).
"""

import ctypes
import math
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from tuner.plan import KernelStep
from workers.backends.cuda.driver import classified

_COOPERATIVE, _CLUSTER, _DEPENDENT = 2, 4, 6
"""The driver's numbers of the attributes."""


class _Size(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class _Value(ctypes.Union):
    _fields_ = (("room", ctypes.c_char * 64), ("size", _Size), ("flag", ctypes.c_int))


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", _Value))


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", _Size),
        ("block", _Size),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@cache
def driver_library() -> Any:
    """The driver's own library, in which CuPy's calls end too."""
    return ctypes.CDLL("libcuda.so.1")


def launcher(
    driver: ModuleType, function: int, step: KernelStep, stream: int
) -> Callable[[int], None]:
    """What launches a step's ``function``, given the address of an argument table."""
    if step.dependent or math.prod(step.cluster) > 1:
        return AttributedLaunch(function, step, stream)
    fixed = (function, *step.grid, *step.block, step.shared_bytes, stream)
    if step.cooperative:
        return lambda table: driver.launchCooperativeKernel(*fixed, table)
    return lambda table: driver.launchKernel(*fixed, table, 0)


class AttributedLaunch:
    """One step's launch of ``function`` on ``stream``, with the step's attributes."""

    def __init__(self, function: int, step: KernelStep, stream: int) -> None:
        self._function = function
        attributes = []
        if step.cooperative:
            attributes.append(_Attribute(id=_COOPERATIVE, value=_Value(flag=1)))
        if math.prod(step.cluster) > 1:
            attributes.append(_Attribute(id=_CLUSTER, value=_Value(size=_Size(*step.cluster))))
        if step.dependent:
            attributes.append(_Attribute(id=_DEPENDENT, value=_Value(flag=1)))
        self._config = LaunchConfig(
            grid=_Size(*step.grid),
            block=_Size(*step.block),
            shared_bytes=step.shared_bytes,
            stream=stream,
            attributes=(_Attribute * max(1, len(attributes)))(*attributes),
            count=len(attributes),
        )

    def __call__(self, arguments: int) -> None:
        """Launch with the argument table at this address.

        Raises:
            DeviceFailure: the driver refused.
        """
        status: int = driver_library().cuLaunchKernelEx(
            ctypes.byref(self._config),
            ctypes.c_void_p(self._function),
            ctypes.c_void_p(arguments),
            None,
        )
        if status:
            raise classified(status, f"the driver refused the launch with status {status}")
