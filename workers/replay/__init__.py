"""Captured launches run again on a device, and what that tells of the kernel's arguments.

Beside :mod:`workers.interposer`, which records inside the application: here the device is ours, and
the application is gone.
"""
