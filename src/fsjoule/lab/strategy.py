"""off -> flashed -> booted: a board reaches a state in time, or it is switched off with an error."""

from __future__ import annotations

import contextlib
import enum
import re
import time
from collections.abc import Generator
from typing import Any, Final

import attr
import pexpect
from labgrid import Target
from labgrid.driver import ManualPowerDriver
from labgrid.exceptions import InvalidConfigError
from labgrid.factory import target_factory
from labgrid.step import step
from labgrid.strategy import Strategy
from serial import SerialException

from fsjoule.errors import BoardError, ConfigError, FsjouleError, LabError, Part, PlaceLostError, also
from fsjoule.lab import arguments
from fsjoule.lab.boot_watch import BootWatch
from fsjoule.lab.console import ConsoleRecorder, steady
from fsjoule.lab.flashers import DiskImage, FlasherProtocol, KernelKeeper, check_boots, named_card
from fsjoule.lab.lease import Guard
from fsjoule.lab.shell import PANIC, BoardShell, LabgridShell
from fsjoule.lab.ssh import SshConnection, SshServer
from fsjoule.lab.translate import lab_errors, time_limit
from fsjoule.ports import LabHealth

_POWER_TIMEOUT_S: Final = 30.0
_HAND_TIMEOUT_S: Final = 600.0  # for somebody who was asked to switch the board
_CONSOLE_ATTEMPTS: Final = 3
_CONSOLE_TIMEOUT_S: Final = 60.0
_DRAIN_TIMEOUT_S: Final = 10.0
_QUIET_S: Final = 0.2
_LOOK_S: Final = 2.0


class Status(enum.Enum):
    unknown = 0
    off = 1
    flashed = 2
    booted = 3


@target_factory.reg_driver
@attr.s(eq=False)
class BoardStrategy(Strategy):
    """Brings the board into one of three states, with `card` on its card.

    A failed transition switches the board off and can be tried again. But a board whose place was taken away is left
    alone: `guard` is asked before anything is done to it.

    Without `card` (plain labgrid) the card is the environment file's image named `image`, or the board's present card.

    Args:
        board (str): the board's name in results
        recipe (str): the recipe of its card images
        simulated (bool): whether its figures come from an emulation
        mark_device (str): the board's UART to the meter, or the LED (`brightness`) that is a GPIO to its mark pin
        marks_on_console (bool): it is the console's UART, whose output the meter hears, too
        card_device (str): the board's name for the card's block device
        scratch_device (str): the partition of the card that may be overwritten
        scratch_mib (int): use only so much of that partition, from its begin
        purge (bool): discard the scratch partition before making each filesystem
        off_time (float): seconds without power before it is switched on, for its capacitors
        size_factor (float): factor for the sizes of published suites
        size_factors (dict): factors for single suites or parts, by name
        storages (dict): block device and size of further storage devices, by name; all may be overwritten
        log_storage (str): the one of `storages` that has the log of crash states, instead of the board's memory
        memory_mib (int): the board's memory, which a workload must not exceed
        guest_time (bool): the board's and the meter's clocks stop while the board waits for input
        card_model (str): the card in labgrid/virtual to project, if the emulated card takes no time
        count_instructions (bool): perf counts the instructions of each measurement on the board
        window_excess (float): seconds that a window may exceed the work, to start the programs that send marks
        board_state (dict): what is asked of the board's governor, temperature and load before each measurement
        boot_timeout (int): seconds from power to login
        silence_timeout (int): seconds from power to the first console output
        restarts (int): starts that a boot loader with two slots may need beyond the first, to fall back
        boot_loader (bool): the board starts the boot loader that is on its card
        boot_failure (regex): the boot loader's last message when it gives up, besides those of U-Boot
        image (str): under plain labgrid: the image to flash, a name in the environment file's `images`
    """

    bindings = {  # noqa: RUF012 - labgrid's way
        "power": "PowerProtocol",
        "console": "ConsoleProtocol",
        "shell": "ShellDriver",
        "flasher": FlasherProtocol,
        "ssh": {"SSHDriver", None},
        "ssh_server": {SshServer, None},
    }

    board = arguments.text()
    recipe = arguments.text()
    simulated = arguments.flag()
    mark_device = arguments.text()
    card_device = arguments.text()
    scratch_device = arguments.text()
    marks_on_console = arguments.flag(False)
    scratch_mib = arguments.whole(0)
    purge = arguments.flag(True)
    off_time = arguments.number(2.0)
    size_factor = arguments.number(1.0)
    size_factors = arguments.factors()
    storages = arguments.storages()
    log_storage = arguments.text("")
    memory_mib = arguments.whole(0)
    window_excess = arguments.number(0.25)
    count_instructions = arguments.flag(False)
    guest_time = arguments.flag(False)
    card_model = arguments.text("")
    board_state = arguments.board_state()
    boot_timeout = arguments.seconds(180)
    silence_timeout = arguments.seconds(180)
    restarts = arguments.whole(0)
    boot_loader = arguments.flag(False)
    boot_failure = arguments.text("")
    image = arguments.text("")

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.console: Any  # labgrid binds it, as the next two
        self.shell: Any
        self.flasher: Any
        self.card: DiskImage | None = None
        self.guard = Guard()
        self.status = Status.unknown
        self.recorder = ConsoleRecorder(self.console)
        steady(self.console)
        self.health: LabHealth = UnknownHealth()
        self._network = None if self.ssh is None else SshConnection(self._labgrid, self.ssh, self.ssh_server)
        self._shell: BoardShell | None = None
        self._on_card_sha256: str | None = None
        # Since when it has had no power, by our doing; None if it may have some.
        self._off_since_s: float | None = None
        # From when to when it was last switched on, by the monotonic clock.
        self.switched_on_s = (0.0, 0.0)
        self.boot_watch = BootWatch(self)

    @property
    def _labgrid(self) -> Target:
        assert self.target is not None
        return self.target

    @step(args=["status"])
    def transition(self, status: Status | str, *, step: Any = None) -> None:  # noqa: ANN401 - labgrid's
        """Bring the board into `off`, `flashed` or `booted`. A card that already has the image is not flashed again.

        Raises BoardError or LabError, with the board off; PlaceLostError, with the board untouched.
        """
        wanted = _status(status)
        if self.card is None and self.image and wanted is not Status.off:
            self.card = named_card(self.image, self._labgrid.env)
        if self.card is None and wanted is Status.flashed:
            hint = "name it in the environment file: images: {NAME: PATH}, and image: NAME of BoardStrategy"
            wrong: Any = InvalidConfigError  # attrs without types
            raise wrong(f"no card image was chosen; {hint}")
        if self.card is not None and self.boot_loader and wanted is not Status.off:
            check_boots(self.card, self.board)
        if wanted is self.status and (wanted is Status.off or not self._must_flash()):
            step.skip("nothing to do")
            return
        self.status = Status.unknown
        try:
            self._switch_off()
            if wanted is not Status.off:
                self._flash()
            if wanted is Status.booted:
                self._boot()
        except PlaceLostError:
            self.forget_card()
            raise
        except BaseException as error:
            if isinstance(error, LabError):
                # Asked before the power goes off, which removes the traces of a dead board.
                error.blame_lab(self.health.faults())
            # The card's content may be the reason, for example after a power cut: it is written again.
            self.forget_card()
            with contextlib.suppress(FsjouleError):
                self._switch_off()
            raise
        self.status = wanted

    @step(args=["status"])
    def force(self, status: Status | str) -> None:
        """Assume that the board is in a state (labgrid's --lg-initial-state). Its card's content is unknown then."""
        wanted = _status(status)
        self.guard.check()
        self._labgrid.activate(self.power)
        if wanted is Status.booted:
            self._open_console()
            self._log_in()
            self._reach()
        self.status = wanted

    @step(args=["after_s"])
    def cut(self, after_s: float) -> str:
        """Cut the power after `after_s`. Returns the output since the board started work. Raises LabError."""
        self.status = Status.unknown
        with lab_errors("listening to the board until its power is cut", Part.CONSOLE):
            end = time.monotonic() + after_s
            while (left_s := end - time.monotonic()) > 0:
                self.guard.look()
                self.console.expect([".+", pexpect.TIMEOUT], timeout=min(_LOOK_S, left_s))
        self.guard.look()  # asking would take time, and a loss is reported at once
        with self._switching("cutting the board's power"):
            self.power.off()
        with lab_errors("reading what the board said before the cut", Part.CONSOLE):
            self._drain_console()
        said = self.recorder.text()
        self._switch_off()
        self.status = Status.off
        return said

    def look(self) -> tuple[str, ...]:
        """Dead programs of the lab that the board needs, for every wait for the board. Raises PlaceLostError."""
        self.guard.look()
        return self.health.faults()

    def lose(self) -> None:
        """Note that the board has left its shell: the next transition starts from power off."""
        self.status = Status.unknown

    def forget_card(self) -> None:
        self._on_card_sha256 = None

    def _must_flash(self) -> bool:
        return self.card is not None and self.card.facts.card_sha256 != self._on_card_sha256

    def _switch_off(self) -> None:
        """The outlet first: no error of the console and no interrupt can keep the board on."""
        self._check_may_switch_off()
        try:
            with self._switching("switching the board off"):
                self._labgrid.activate(self.power)
                self.power.off()
        except BaseException as error:
            with also(error, "closing the console"):
                self._close_console()
            raise
        if self._off_since_s is None:
            self._off_since_s = time.monotonic()
        self._close_console()

    def _close_console(self) -> None:
        try:
            if self._network is not None:
                self._network.close()
        finally:
            doing = "closing the console"
            with lab_errors(doing, Part.CONSOLE), time_limit(_CONSOLE_TIMEOUT_S, doing):
                self._labgrid.deactivate(self.console)

    def _check_may_switch_off(self) -> None:
        """Raise PlaceLostError if the board is another user's.

        Without an answer from the coordinator the board may be switched off: nobody gets a place without the
        coordinator, and an unattended board is better off.
        """
        try:
            self.guard.check()
        except PlaceLostError:
            raise
        except LabError:
            return

    def _flash(self) -> None:
        if self.card is None or not self._must_flash():
            return
        self.guard.check()
        self._on_card_sha256 = None
        try:
            with lab_errors("flashing the card", Part.FLASHER):
                self.flasher.flash(self.card.path, self)
        except BoardError as error:
            error.part = error.part or Part.FLASHER  # no kernel of the user's runs yet
            raise
        if self.flasher.starts_board:
            self._switch_off()
        self._on_card_sha256 = self.card.facts.card_sha256

    def _boot(self) -> None:
        try:
            self._await_shell()
            if self.card is not None:
                with lab_errors("looking at the card"):
                    self.flasher.check_booted(self.card.path, self, self._on_console())
            self._reach()  # last: a kernel in a second slot has its network's module only now
        except BoardError as error:
            if isinstance(self.flasher, KernelKeeper) and not self.look():
                with also(error, "returning to the kept kernel"):
                    self.off()
                    error.blame([self.flasher.return_to_kept(self)])
            raise

    def boot(self, *, unless: str = "") -> BoardShell | None:
        """Switch the board on and log in; None if its console says `unless` first. Raises BoardError, LabError."""
        return self._reach() if self._await_shell(unless) else None

    def _await_shell(self, unless: str = "") -> bool:
        self.start()
        with lab_errors("waiting for the board's login", Part.CONSOLE):
            if logs_in := self.boot_watch.await_login(unless):
                self._log_in()
        return logs_in

    def _on_console(self) -> LabgridShell:
        return LabgridShell(self.shell, self.recorder, self.lose, self.look, patient=self.guest_time)

    @property
    def board_shell(self) -> BoardShell:
        """The shell of the booted board: over ssh if the environment file has it, or else on its console."""
        assert self._shell is not None
        return self._shell

    def _reach(self) -> BoardShell:
        console = self._on_console()
        self._shell = console if self._network is None else self._network.open(console, self)
        return self._shell

    def off(self) -> None:
        """Switch the board off, and close its console. Raises LabError, PlaceLostError."""
        self._switch_off()

    def start(self) -> None:
        """Switch the board on, with its console open and empty, and do not wait for it. Raises LabError."""
        self.guard.check()
        self._open_console()
        with lab_errors("emptying the console", Part.CONSOLE):
            self._drain_console()
        self.recorder.clear()
        # Without power for `off_time`; being flashed counts.
        now_s = time.monotonic()
        off_since_s = now_s if self._off_since_s is None else self._off_since_s
        time.sleep(max(0.0, off_since_s + self.off_time - now_s))
        self.guard.check()
        self._off_since_s = None
        begin_s = time.monotonic()
        with self._switching("switching the board on"):
            self.power.on()
        self.switched_on_s = begin_s, time.monotonic()

    @contextlib.contextmanager
    def _switching(self, doing: str) -> Generator[None]:
        """What is done at the outlet: its faults are the power's, and it has a time limit."""
        limit_s = _HAND_TIMEOUT_S if isinstance(self.power, ManualPowerDriver) else _POWER_TIMEOUT_S
        with lab_errors(doing, Part.POWER), time_limit(limit_s, doing, lambda: self.health.faults(Part.POWER)):
            yield

    @property
    def tells_power(self) -> bool:
        """Whether the outlet's driver can be asked; labgrid's ExternalPowerDriver cannot."""
        return hasattr(self.power, "get")

    def has_power(self) -> bool:
        """Whether the outlet is on. Raises LabError if it does not tell."""
        doing = "asking the outlet"
        if not self.tells_power:
            raise LabError(f"{doing} is not possible: {type(self.power).__name__} cannot tell")
        with self._switching(doing):
            return bool(self.power.get())

    def _open_console(self) -> None:
        """Connect to the console; a negotiation of pyserial with ser2net that times out is tried again."""
        for attempt in range(1, _CONSOLE_ATTEMPTS + 1):
            try:
                doing = "opening the console"
                with lab_errors(doing, Part.CONSOLE), time_limit(_CONSOLE_TIMEOUT_S, doing, self.health.faults):
                    self._labgrid.activate(self.console)
            except LabError as error:
                if attempt == _CONSOLE_ATTEMPTS or not isinstance(error.__cause__, (SerialException, ValueError)):
                    raise
            else:
                return

    def _drain_console(self) -> None:
        """Read the output from before the power went off: an old panic or login must not look like a new one."""
        deadline = time.monotonic() + _DRAIN_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.console.expect([".+", pexpect.TIMEOUT], timeout=_QUIET_S)[0] == 1:
                return

    def _log_in(self) -> None:
        self.console.sendline("")  # the awaited prompt is consumed
        # labgrid's driver may still believe that it is logged in, if the board died during its last activation.
        self.shell.on_deactivate()
        try:
            self._labgrid.activate(self.shell)
        except (pexpect.TIMEOUT, pexpect.EOF) as error:
            panic = re.search(PANIC, self.recorder.text())
            reason = panic[0] if panic else "no shell after the login prompt"
            raise self.boot_watch.did_not_boot(reason, self.look()) from error

    def error(self, what: str) -> BoardError:
        """An error about this board, with the last lines of its console."""
        return BoardError(f"{self.board} {what}", console_tail=self.recorder.tail() or ["(nothing)"])


class UnknownHealth:
    """ports.LabHealth of a lab of which nothing is known beside labgrid, as under plain labgrid."""

    def faults(self, part: Part | None = None) -> tuple[str, ...]:  # noqa: ARG002
        return ()


def _status(status: Status | str) -> Status:
    found = status if isinstance(status, Status) else Status.__members__.get(status, Status.unknown)
    if found is Status.unknown:
        raise ConfigError.unknown("state", str(status), [s.name for s in Status if s is not Status.unknown])
    return found
