"""The two files of the virtual board's program: its config (as `labgrid/virtual/board.toml`), and its ready file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from fsjoule.errors import ConfigError, LabError
from fsjoule.host.toml_lines import config_text, line_of, parse_toml
from fsjoule.meter.instruments import INSTRUMENTS
from fsjoule.model import MIB
from fsjoule.virtual.board.power import PowerCoefficients
from fsjoule.virtual.disks.flash_card import FlashCard, FlashGeometry
from fsjoule.virtual.disks.lossy_disk import Cache

# sun_path holds 108 bytes, including the final NUL.
_SOCKET_PATH_LIMIT_BYTES: Final = 107

_Mib = Annotated[int, Field(gt=0, le=4096)]
_DiskMib = Annotated[int, Field(gt=0, le=1024 * 1024)]


ALL: Final = "all"


def _instrument(name: str) -> str:
    emulated = [*(row.name for row in INSTRUMENTS.values() if row.emulator_module), ALL]
    if name not in emulated:
        raise ValueError(f"{name} is no instrument with an emulator; choose from: {', '.join(emulated)}")
    return name


_Text = Annotated[str, Field(min_length=1)]
_DiskName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,23}$")]


class Boot(StrEnum):
    """The program that starts at power-on: the kernel of the card's extlinux.conf, or the board's own boot loader.

    The boot loader is on the card, or in `flash_memory`. With `firmware` it is the one that config.txt on the card
    names, as on a Raspberry Pi.
    """

    KERNEL = "kernel"
    LOADER = "loader"
    FIRMWARE = "firmware"


class Serial(StrEnum):
    """A serial line of the machine: the console, the meter's mark line, or one that nothing is connected to."""

    CONSOLE = "console"
    MARK = "mark"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class QemuConfig:
    """The emulated board. `program` is a name on the PATH or a path; `extra_args` come before card and disks.

    `serials` are the machine's serial lines in its own order. Without `mark` and a GPIO for the marks the meter listens
    to the console. `defaults` is for a machine that gives a card only to its default devices.
    """

    program: _Text = "qemu-system-arm"
    machine: _Text = "mcimx6ul-evk"
    memory_mib: _Mib = 512
    boot: Boot = Boot.KERNEL
    serials: tuple[Serial, ...] = (Serial.CONSOLE, Serial.MARK)
    extra_args: tuple[str, ...] = ()
    defaults: bool = False


@dataclass(frozen=True, slots=True)
class CardConfig:
    """The card and its mux. If `image` does not exist, an empty card of `size_mib` is made.

    `device` is the text of QEMU's -device for it, without its drive. It is empty for a machine with its own slots,
    where the card goes into `slot`; slot 1 of the i.MX6UL is the one that Linux calls mmcblk1. With `usb` the board's
    USB device port is wired to the exporter's computer, to which U-Boot's `ums` offers the card.
    """

    image: Path = Path("card.img")
    control_socket: Path = Path("mux.sock")
    size_mib: _Mib = 1024
    slot: Annotated[int, Field(ge=0, le=3)] = 1
    device: str = ""
    usb: bool = False

    @property
    def size_bytes(self) -> int:
        return self.size_mib * MIB

    @property
    def host_device(self) -> Path:
        """The card's path on the host while the host has it."""
        return self.control_socket.with_name("card")


@dataclass(frozen=True, slots=True)
class DiskConfig:
    """A further disk. `device` is the text of QEMU's -device for it, without its drive: `nvme,serial=nvme0`.

    `cache` is the fate of unflushed writes at a power cut: kept, lost, or torn. With `flash_spare` requests take the
    time of a card whose flash memory is so much larger than the disk, with `flash_cache_mib` of pSLC cache.
    `if=mtd,index=1` is no disk but a chip of raw flash memory that the machine has.
    """

    device: _Text
    size_mib: _DiskMib
    cache: Cache = Cache.KEPT
    flash_spare: Annotated[float, Field(ge=0, le=1)] = 0.0
    flash_cache_mib: Annotated[int, Field(ge=0, le=4096)] = 0

    @property
    def size_bytes(self) -> int:
        return self.size_mib * MIB

    @property
    def is_raw_flash(self) -> bool:
        return self.device.startswith("if=mtd,")

    @property
    def served(self) -> bool:
        """Whether the disk server has it; QEMU opens the image itself if not."""
        return self.cache is not Cache.KEPT or self.flash_spare > 0

    @property
    def flash(self) -> FlashCard | None:
        """A new card, if it is one."""
        if not self.flash_spare:
            return None
        return FlashCard(self.size_bytes, FlashGeometry(spare=self.flash_spare, cache_bytes=self.flash_cache_mib * MIB))


@dataclass(frozen=True, slots=True)
class WiresConfig:
    """The board's serial lines: `console` is the board's link to its pty, `mark` is the meter's mark tty.

    The meter may come and go: `mark` is opened when the board sends a mark. `pin` is the tty of the meter's mark pin.
    """

    console: Path = Path("console")
    mark: Path = Path("marks")
    pin: Path = Path("pin")


@dataclass(frozen=True, slots=True)
class MarkGpioConfig:
    """A pin of the board that is wired to the meter's mark pin: QEMU's path of its GPIO controller, and the line."""

    controller: Annotated[str, StringConstraints(pattern=r"^/machine/\S+$")]
    line: Annotated[int, Field(ge=0, le=255)]


@dataclass(frozen=True, slots=True)
class OutletConfig:
    """The address of the outlet's HTTP server. Port 0 takes a free port, which the ready file tells."""

    address: _Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    index: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, slots=True)
class GuestTimeConfig:
    """A board whose clock counts instructions, `2 ** shift` ns each, and stops while the board waits for input.

    Input reaches it through the socket `mailbox`; the library `probe` reports its power. Its `feed` is a FIFO. Energy
    of the card is drawn at `card_peak_w` until it is paid.
    """

    mailbox: Path = Path("mailbox.sock")
    probe: Path = Path("guest_probe.so")
    shift: Annotated[int, Field(ge=0, le=10)] = 2
    card_peak_w: Annotated[float, Field(gt=0, le=2)] = 1.0


@dataclass(frozen=True, slots=True)
class FlashMemoryConfig:
    """The boot loader in the board's own flash memory: a file of a Debian package, without its first `skip` bytes.

    QEMU's boot ROM does not read that memory: the code begins at `address` in the board's memory at power-on.
    `fsjoule lab up` fetches it into `image`.
    """

    suite: _Text
    package: _Text
    file: _Text
    address: Annotated[int, Field(ge=0, lt=2**32)]
    skip: Annotated[int, Field(ge=0)] = 0
    image: Path = Path("flash.bin")


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """A network of the board's own: QEMU's DHCP, and its TFTP server with the files in the folder `tftp`.

    The board's ssh server is port `ssh_port` of 127.0.0.1, if that is not 0. With `fastboot` UDP
    port `fastboot_port` is that of U-Boot's fastboot; then the board reaches the host, because QEMU's filter drops UDP.
    """

    tftp: Path = Path("tftp")
    ssh_port: Annotated[int, Field(ge=0, le=65535)] = 0
    fastboot_port: Annotated[int, Field(ge=0, le=65535)] = 0
    fastboot: bool = False


@dataclass(frozen=True, slots=True)
class BoardConfig:
    """Everything that `python -m fsjoule.virtual.board.program` needs. `from_toml` makes paths absolute.

    `recipe` names the board's card images (`images/*.toml`), `soc` the chip that it emulates.
    """

    # Its tables inherit it.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: _Text
    log_dir: Path = Path("logs")
    ready_file: Path = Path("board.ready.json")
    feed: Path = Path("power.feed")
    card: CardConfig = field(default_factory=CardConfig)
    wires: WiresConfig = field(default_factory=WiresConfig)
    mark_gpio: MarkGpioConfig | None = None
    outlet: OutletConfig = field(default_factory=OutletConfig)
    qemu: QemuConfig = field(default_factory=QemuConfig)
    power: PowerCoefficients = field(default_factory=PowerCoefficients)
    guest_time: GuestTimeConfig | None = None
    flash_memory: FlashMemoryConfig | None = None
    network: NetworkConfig | None = None
    recipe: _Text = "imx6ul"
    soc: _Text = "imx6ul"
    # Emulated beside the meter, by name, or `all` that need no wire of their own. A serial adapter takes their marks to
    # the host; a PPK2 has the wire of the pin, too.
    instruments: tuple[Annotated[str, AfterValidator(_instrument)], ...] = ()
    disks: dict[_DiskName, DiskConfig] = field(default_factory=dict[str, DiskConfig])

    @property
    def adapter(self) -> list[Path]:
        """The tty of the serial adapter that the mark line goes to beside the meter; none without instruments."""
        return [self.wires.mark.with_name(f"adapter-{self.wires.mark.name}")] if self.instruments else []

    @property
    def ppk2_pin(self) -> list[Path]:
        """The tty of D0 of a PPK2, which the pin for the marks goes to beside the meter."""
        return [self.wires.pin.with_name(f"ppk2-{self.wires.pin.name}")] if "ppk2" in self.instruments else []

    def disk_image(self, name: str) -> Path:
        return self.card.image.with_name(f"{self.card.image.stem}-{name}.img")

    def disk_socket(self, name: str) -> Path:
        """The socket of a disk that can lose its cache, in the short directory of the mux's socket."""
        return self.card.control_socket.with_name(f"disk-{name}")

    @classmethod
    def from_toml(cls, file: Path, *, folder: Path | None = None) -> BoardConfig:
        """Read a config file; relative paths start at `folder`, by default its own.

        Raises ConfigError with line and advice.
        """
        text = config_text(file, "the board's config", hint="labgrid/virtual/board.toml is an example to start from")
        try:
            config = _BOARD.validate_python(parse_toml(text, file))
        except ValidationError as error:
            raise _config_error(error, file, text) from None
        config = config.below(file.absolute().parent if folder is None else folder)
        _check_size(config, file, text)
        _check_socket_path("card", "control_socket", config.card.control_socket, file, text)
        for name, disk in config.disks.items():
            if disk.flash_cache_mib and not disk.flash_spare:
                line = line_of(text, [_DISKS, name, "flash_cache_mib"])
                hint = "it is a part of a card's flash memory: give flash_spare, too, for example 0.07"
                raise ConfigError(f"disks.{name} has flash_cache_mib alone", file=file, line=line, hint=hint)
            if disk.served:
                _check_socket_path("card", "control_socket", config.disk_socket(name), file, text)
        if config.guest_time is not None:
            _check_socket_path("guest_time", "mailbox", config.guest_time.mailbox, file, text)
            _check_parts(config, file, text)
        _check_serials(config, file, text)
        return config

    def to_toml(self) -> str:
        """The text of a config file from which `from_toml` reads the same config."""
        plain = asdict(self)
        tables = {name: plain.pop(name) for name in _TABLES}
        tables |= {f"{_DISKS}.{name}": values for name, values in plain.pop(_DISKS).items()}
        tables = {name: values for name, values in tables.items() if values is not None}
        lines = [f"{key} = {_literal(value)}" for key, value in plain.items()]
        for name, values in tables.items():
            lines += ["", f"[{name}]", *(f"{key} = {_literal(value)}" for key, value in values.items())]
        return "\n".join(lines) + "\n"

    def below(self, folder: Path) -> BoardConfig:
        """The same config with relative paths resolved below `folder`."""
        card = replace(self.card, image=folder / self.card.image, control_socket=folder / self.card.control_socket)
        wires = self.wires
        wires = WiresConfig(folder / wires.console, folder / wires.mark, folder / wires.pin)
        guest = self.guest_time
        if guest is not None:
            guest = replace(guest, mailbox=folder / guest.mailbox, probe=folder / guest.probe)
        flash = self.flash_memory
        return replace(
            self,
            network=None if self.network is None else replace(self.network, tftp=folder / self.network.tftp),
            flash_memory=None if flash is None else replace(flash, image=folder / flash.image),
            log_dir=folder / self.log_dir,
            ready_file=folder / self.ready_file,
            feed=folder / self.feed,
            card=card,
            wires=wires,
            guest_time=guest,
        )


_DISKS: Final = "disks"
_TABLES: Final[
    dict[
        str,
        type[
            CardConfig
            | WiresConfig
            | MarkGpioConfig
            | OutletConfig
            | QemuConfig
            | PowerCoefficients
            | GuestTimeConfig
            | FlashMemoryConfig
            | NetworkConfig
        ],
    ]
] = {
    "card": CardConfig,
    "wires": WiresConfig,
    "mark_gpio": MarkGpioConfig,
    "outlet": OutletConfig,
    "qemu": QemuConfig,
    "power": PowerCoefficients,
    "guest_time": GuestTimeConfig,
    "flash_memory": FlashMemoryConfig,
    "network": NetworkConfig,
}
_BOARD: Final[TypeAdapter[BoardConfig]] = TypeAdapter(BoardConfig)


def _config_error(error: ValidationError, file: Path, text: str) -> ConfigError:
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    key = ".".join(where)
    line = line_of(text, where)
    if first["type"] == "missing":
        return ConfigError(f"the key {key!r} is missing", file=file, line=line, hint=f"add {where[-1]} = ...")
    if first["type"] == "unexpected_keyword_argument":
        choices = ", ".join(_known_keys(where[:-1]))
        return ConfigError(f"unknown key {key!r}", file=file, line=line, hint=f"choose from: {choices}")
    return ConfigError(f"{key} = {first['input']!r} is wrong", file=file, line=line, hint=first["msg"])


def _known_keys(tables: Sequence[str]) -> list[str]:
    match tables:
        case []:
            return [each.name for each in fields(BoardConfig)]
        case [table] if table in _TABLES:
            return [each.name for each in fields(_TABLES[table])]
        case _:
            return [each.name for each in fields(DiskConfig)]


def _check_size(config: BoardConfig, file: Path, text: str) -> None:
    size = config.card.size_mib
    if size & (size - 1):
        line = line_of(text, ["card", "size_mib"])
        lower = 1 << (size.bit_length() - 1)
        hint = f"QEMU's SD card must be a power of two: {lower} or {lower * 2}"
        raise ConfigError(f"card.size_mib = {size} is wrong", file=file, line=line, hint=hint)


def _check_parts(config: BoardConfig, file: Path, text: str) -> None:
    """Raise ConfigError for parts that a board in guest time does not have."""
    if config.disks:
        hint = "leave [disks] or [guest_time] out"
        line = line_of(text, [_DISKS, *config.disks])
        raise ConfigError("a board in guest time has no disks besides its card", file=file, line=line, hint=hint)
    if config.mark_gpio is not None:
        what = "a board in guest time sends its marks over a UART, not a GPIO"
        raise ConfigError(what, file=file, line=line_of(text, ["mark_gpio"]), hint="leave [mark_gpio] out")


def _check_serials(config: BoardConfig, file: Path, text: str) -> None:
    for wanted in (Serial.CONSOLE, Serial.MARK):
        count = config.qemu.serials.count(wanted)
        if count != 1 and (count or wanted is Serial.CONSOLE or config.guest_time is not None):
            line = line_of(text, ["qemu", "serials"])
            hint = "name console and mark once, in the machine's order; mark may be missing, but not in guest time"
            raise ConfigError(f"qemu.serials has {count} times {wanted.value!r}", file=file, line=line, hint=hint)


def _check_socket_path(table: str, key: str, path: Path, file: Path, text: str) -> None:
    if len(bytes(path)) > _SOCKET_PATH_LIMIT_BYTES:
        line = line_of(text, [table, key])
        hint = f"the path of a unix socket has at most {_SOCKET_PATH_LIMIT_BYTES} bytes: put it in a short directory"
        raise ConfigError(f"{table}.{key} = '{path}' is too long", file=file, line=line, hint=hint)


def _literal(value: str | float | Path | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(json.dumps(each) for each in value) + "]"
    # JSON's strings and numbers are valid TOML.
    return json.dumps(str(value) if isinstance(value, Path) else value)


@dataclass(frozen=True, slots=True)
class BoardReady:
    """The ready file (JSON): written when the board program is ready, removed when it ends.

    `outlet_url` is labgrid's `host` of NetworkPowerPort, with `{index}`; `card_device` is the card's path in
    position `host`; `mux_control` is the control path for `usbsdmux`.
    """

    pid: int
    outlet_url: str
    status_url: str
    card_device: str
    mux_control: str
    console: str

    @classmethod
    def read(cls, file: Path) -> BoardReady | None:
        """The file's content, or None if it is missing. Raises LabError for wrong content."""
        try:
            return _READY.validate_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise LabError(f"{file} is not a ready file of a virtual board: {error}") from error

    def write(self, file: Path) -> None:
        """Write it atomically."""
        beside = file.with_name(file.name + ".new")
        beside.write_text(json.dumps(asdict(self), indent=2) + "\n")
        beside.replace(file)


_READY: Final[TypeAdapter[BoardReady]] = TypeAdapter(BoardReady)
