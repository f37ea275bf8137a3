"""Tuning of the memory allocator for a process that only serves."""


def keep_freed_memory() -> None:
    """Let glibc keep up to 8 MiB of freed memory for later allocations.

    glibc first returns freed memory above 128 KiB to the system, and each flush of long events
    would need new pages. When a mapped block is freed, glibc raises its thresholds to the size of
    that block and twice that size (mallopt(3), M_MMAP_THRESHOLD).
    """
    bytes(4 * 2**20)
