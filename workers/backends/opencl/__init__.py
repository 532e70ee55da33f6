"""OpenCL through pyopencl."""
