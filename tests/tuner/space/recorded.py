"""Parameter spaces of well-known kernels: parameters and constraints, as published."""

CONVOLUTION = (
    {
        "block_size_x": tuple(range(16, 257, 16)),
        "block_size_y": (1, 2, 4, 8, 16),
        "tile_size_x": (1, 2, 3, 4),
        "tile_size_y": (1, 2, 3, 4),
        "read_only": (0, 1),
        "use_padding": (0, 1),
        "use_shmem": (0, 1),
        "use_cmem": (1,),
        "filter_height": (15,),
        "filter_width": (15,),
    },
    [
        "use_padding == 0 or block_size_x % 32 != 0",
        "block_size_x*block_size_y <= 1024",
        "use_padding == 0 or use_shmem != 0",
        (
            "use_shmem == 0 or (block_size_x*tile_size_x + filter_width - 1)"
            "*(block_size_y*tile_size_y + filter_height - 1) < 12*1024"
        ),
    ],
)

DEDISPERSION = (
    {
        "block_size_x": (1, 2, 4, 8, 16, 32),
        "block_size_y": tuple(range(32, 257, 8)),
        "block_size_z": (1,),
        "tile_size_x": (1, 2, 3, 4),
        "tile_size_y": tuple(range(1, 9)),
        "tile_stride_x": (0, 1),
        "tile_stride_y": (0, 1),
        "loop_unroll_factor_channel": (0,),
    },
    [
        "32 <= block_size_x*block_size_y <= 1024",
        "tile_size_x > 1 or tile_stride_x == 0",
        "tile_size_y > 1 or tile_stride_y == 0",
    ],
)

GEMM = (
    {
        "MWG": (16, 32, 64, 128),
        "NWG": (16, 32, 64, 128),
        "KWG": (32,),
        "MDIMC": (8, 16, 32),
        "NDIMC": (8, 16, 32),
        "MDIMA": (8, 16, 32),
        "NDIMB": (8, 16, 32),
        "KWI": (2,),
        "VWM": (1, 2, 4, 8),
        "VWN": (1, 2, 4, 8),
        "STRM": (0,),
        "STRN": (0,),
        "SA": (0, 1),
        "SB": (0, 1),
        "PRECISION": (32,),
    },
    [
        "KWG % KWI == 0",
        "MWG % (MDIMC*VWM) == 0",
        "NWG % (NDIMC*VWN) == 0",
        "MWG % (MDIMA*VWM) == 0",
        "NWG % (NDIMB*VWN) == 0",
        "KWG % ((MDIMC*NDIMC)//MDIMA) == 0",
        "KWG % ((MDIMC*NDIMC)//NDIMB) == 0",
    ],
)
