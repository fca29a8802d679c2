"""A kernel image from a build, ARM's zImage, 64-bit ARM's Image or x86's bzImage: its release, its form on the card."""

from __future__ import annotations

from fsjoule.kernels import arm64image, bzimage, zimage


def kernel_release(image: bytes) -> str | None:
    """The kernel's own release; None if its compression is not supported."""
    if arm64image.is_image(image):
        return arm64image.release(image)
    return bzimage.release(image) if bzimage.is_bzimage(image) else zimage.kernel_release(image)


def unpacked_kernel(image: bytes, *, memory_base: int | None, name: str) -> tuple[str, bytes] | None:
    """File name and content of the unpacked kernel, so that the board need not unpack it at every boot.

    `memory_base` is the start of the board's memory, for a format that contains the kernel's address. None if it cannot
    be unpacked; the image itself boots, too.
    """
    if bzimage.is_bzimage(image):
        file, content = "vmlinux", bzimage.unpacked(image)
    elif memory_base is not None:
        file, content = "uImage", zimage.unpacked_kernel(image, memory_base=memory_base, name=name)
    else:
        return None
    return None if content is None else (file, content)
