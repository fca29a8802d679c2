"""A kernel image as a build leaves it, ARM's zImage or x86's bzImage: what it says it is, what goes onto the card."""

from __future__ import annotations

from fsjoule.kernels import bzimage, zimage


def kernel_release(image: bytes) -> str | None:
    """The release that the kernel calls itself; None if it is packed in a way not known here."""
    return bzimage.release(image) if bzimage.is_bzimage(image) else zimage.kernel_release(image)


def unpacked_kernel(image: bytes, *, memory_base: int | None, name: str) -> tuple[str, bytes] | None:
    """File name and content of the kernel made ready to start, so that the board need not unpack it at every boot.

    `memory_base` is where the board's memory begins, for a format that says where the kernel belongs. None if it
    cannot be done; the image itself boots all the same.
    """
    if bzimage.is_bzimage(image):
        file, content = "vmlinux", bzimage.unpacked(image)
    elif memory_base is not None:
        file, content = "uImage", zimage.unpacked_kernel(image, memory_base=memory_base, name=name)
    else:
        return None
    return None if content is None else (file, content)
