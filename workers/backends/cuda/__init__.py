"""CUDA through NVRTC and the driver."""
