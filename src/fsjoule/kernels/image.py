"""A kernel image from a build (ARM's zImage, 64-bit ARM's Image, x86's bzImage): its architecture, release and form."""

from __future__ import annotations

from typing import Final

from fsjoule.kernels import arm64image, bzimage, zimage

# RISC-V's Image has a header like 64-bit ARM's (the kernel's Documentation/riscv/boot-image-header.rst).
_RISCV_MAGIC: Final = b"RSC\x05"
_RISCV_MAGIC_AT: Final = 56


def architecture_of(image: bytes) -> str | None:
    """Debian's name of the architecture that a kernel image is for; None for an unknown format."""
    if arm64image.is_image(image):
        return "arm64"
    if zimage.is_zimage(image):
        return "armhf"
    if bzimage.is_bzimage(image):
        return "amd64"
    return "riscv64" if image[_RISCV_MAGIC_AT : _RISCV_MAGIC_AT + len(_RISCV_MAGIC)] == _RISCV_MAGIC else None


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
