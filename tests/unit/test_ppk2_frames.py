"""The PPK2's bytes against an encoder of their own and the app's own result: frames, losses, damage, metadata."""

from __future__ import annotations

import numpy as np
import pytest
from ppk2_frames import GOLDEN_MV, GOLDEN_RAW, GOLDEN_UA, REAL, AppFilter, amperes, frame, frames, metadata

from fsjoule.meter.protocol import ppk2
from fsjoule.meter.protocol.ppk2 import FrameReader, FrameRun, Words, parse_metadata
from fsjoule.meter.protocol.ppk2_trace import SpikeFilter


def _words(data: bytes) -> Words:
    return np.frombuffer(data, dtype="<u4")


def _all(runs: list[FrameRun]) -> bytes:
    return b"".join(run.words.astype("<u4").tobytes() for run in runs)


def test_the_golden_sample_has_the_apps_current() -> None:
    # To the app a 0 is missing, and a missing GS is 1.
    constants = parse_metadata(metadata(changed={"GS0": "1"})).constants
    (current,) = constants.amperes(_words(frame(GOLDEN_RAW, 0, 5)), GOLDEN_MV / 1e3)
    assert current * 1e6 == pytest.approx(GOLDEN_UA, rel=1e-9)


def test_every_field_of_a_frame_is_read() -> None:
    rng = np.random.default_rng(2)
    constants = parse_metadata(metadata()).constants
    drawn = [(int(rng.integers(1 << 14)), int(rng.integers(5)), int(rng.integers(256))) for _ in range(500)]
    words = _words(b"".join(frame(raw, number, at, inputs) for at, (raw, number, inputs) in enumerate(drawn)))
    assert ppk2.ranges_of(words).tolist() == [number for _, number, _ in drawn]
    assert constants.amperes(words, 3.3) == pytest.approx([amperes(raw, number, 3.3) for raw, number, _ in drawn])
    for pin in range(8):
        assert ppk2.logic(words, pin).tolist() == [bool(inputs >> pin & 1) for _, _, inputs in drawn]
    assert _all(list(FrameReader().feed(words.tobytes()))) == words[:-1].tobytes()


def test_a_current_comes_back_from_its_raw_value() -> None:
    constants = parse_metadata(metadata()).constants
    currents = np.array([7e-6, 2e-4, 3e-3, 0.02, 0.4])
    ranges = np.arange(5)
    raw = constants.raw_of(currents, ranges, 5.0)
    back = [amperes(float(each), number, 5.0) for number, each in enumerate(raw)]  # type: ignore[arg-type]
    assert back == pytest.approx(currents)


@pytest.mark.parametrize("size", [1, 3, 4, 7, 64, 1000])
def test_frames_are_the_same_however_the_bytes_come(size: int) -> None:
    data = frames(1000, first=17)
    reader = FrameReader()
    runs = [run for at in range(0, len(data), size) for run in reader.feed(data[at : at + size])]
    assert _all(runs) == data[:-4]
    assert not any(run.lost or run.damaged for run in runs)


@pytest.mark.parametrize("lost", [1, 5, 63])
def test_lost_frames_are_counted(lost: int) -> None:
    reader = FrameReader()
    before, behind = frames(100), frames(100, first=100 + lost)
    runs = list(reader.feed(before + behind))
    assert [run.lost for run in runs if run.lost] == [lost]
    assert _all(runs) == before + behind[:-4]


@pytest.mark.parametrize("missing", [1, 2, 3, 5, 6, 7, 4 * 7 + 2])
def test_lost_bytes_do_not_shift_what_follows(missing: int) -> None:
    rng = np.random.default_rng(4)
    data = b"".join(frame(int(rng.integers(1 << 14)), 4, number) for number in range(300))
    runs = list(FrameReader().feed(data[:402] + data[402 + missing :]))
    # Frames have no checksum: what is left of two may look like one.
    behind = -(-(402 + missing) // 4)
    good, tail = _all(runs), data[behind * 4 : -4]
    assert good.startswith(data[:396])
    assert good.endswith(tail[4:])
    assert len(good) <= len(data[:404]) + len(tail)
    assert len(data) - len(good) == 4 * (sum(run.lost for run in runs) + 1)


def test_noise_before_and_between_is_no_frame() -> None:
    rng = np.random.default_rng(3)
    noise = rng.integers(0, 256, 5000, dtype=np.uint8).tobytes()
    data = frames(200)
    reader = FrameReader()
    runs = list(reader.feed(noise[:2501] + data[:400]))
    runs += reader.feed(noise[2501:] + data[400:])
    # The last frame before the noise in between may have been damaged by it.
    assert _all(runs) == data[:396] + data[400:-4]
    assert sum(run.damaged for run in runs) == len(noise) + 4


def test_a_frame_with_a_wrong_bit_is_lost_with_the_one_before_it() -> None:
    data = bytearray(frames(100))
    data[202] ^= 0x08  # in the counter of frame 50
    runs = list(FrameReader().feed(bytes(data)))
    assert _all(runs) == frames(49) + frames(48, first=51)
    assert [run.lost for run in runs if run.lost] == [2]


def test_a_known_instrument_has_a_name_that_its_settings_do_not_change() -> None:
    known = parse_metadata(metadata())
    assert known.identity == parse_metadata(metadata(changed={"UG2": "1.02", "VDD": "800", "New": "7"})).identity
    assert known.identity != parse_metadata(metadata(changed={"R3": "0.9637"})).identity
    assert known.identity.startswith("PPK2-")
    assert parse_metadata(metadata(changed={"Simulated": "1"})).identity.startswith("SIM-")
    assert known.constants.ug.tolist() == list(REAL["UG"])


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (metadata(without=["O4"]), "O4 is missing"),
        (metadata(changed={"GI1": "-nan"}), "GI1 is '-nan'"),
        (metadata(changed={"R0": "0"}), "a value of R is not above 0"),
        (b"OK\r\nEND", "R0 is missing"),
    ],
)
def test_an_incomplete_calibration_is_refused(reply: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_metadata(reply)


@pytest.mark.parametrize("piece", [1, 2, 7, 100, 5000])
@pytest.mark.parametrize("changes", [0.0, 0.02, 0.5])
def test_the_filter_is_the_apps(piece: int, changes: float) -> None:
    """Sample by sample and in pieces of any length, with ranges that seldom change, and with ranges that chatter."""
    rng = np.random.default_rng(5)
    count = 2000 if piece > 2 else 400
    changed = rng.random(count) < changes
    ranges = np.cumsum(np.where(changed, rng.integers(1, 5, count), 0)) % 5
    currents = 10.0 ** rng.uniform(-6, 0, count)
    wanted = AppFilter().feed(zip(currents.tolist(), ranges.tolist(), strict=True))
    ours = SpikeFilter()
    words = ranges.astype(np.uint32)
    found = [ours.filtered(currents[at : at + piece], words[at : at + piece]) for at in range(0, count, piece)]
    assert np.concatenate(found) == pytest.approx(wanted, rel=1e-9)
