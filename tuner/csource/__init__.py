"""One reader of C-like source: OpenCL C and CUDA C++, read without a compiler."""
