"""Every format of compare, gate, trend and bisect, printed or written; JUnit says what failed and what is open."""

from __future__ import annotations

import json
import re
from email import message_from_string, policy
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from bisections import Bisection, figures
from command_line import CommandLine
from compared_runs import write_kernels
from nights import Nights, slower_at

from fsjoule.report import renderers
from fsjoule.report.bisection.view import BisectionView
from fsjoule.report.renderers import CaseState, Renderer, VerdictCase, VerdictView, to_github, to_junit, to_mail
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.testing import FakeKernelBoots

_COMMAND = re.compile(r"::(error|warning|notice) title=[^:,]+::.+")
FORMATS = ("text", "markdown", "json", "page", "junit", "github", "mail")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kernels of one run, the second slower; and an index of nights with a loss."""
    here = tmp_path_factory.mktemp("measured")
    write_kernels(here / "run", speeds={"6.1": 1.0, "6.12": 0.9}, boots=8)
    Nights(speed=slower_at(15)).write(here / "nights", 30)
    with open_index(here / "index.sqlite", create=True) as index:
        import_runs(index, [here / "nights"])
    return here


@pytest.fixture
def fsjoule(fsjoule: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    return fsjoule


def _words(command: str, measured: Path) -> tuple[str, ...]:
    if command == "trend":
        return ("trend", "--index", str(measured / "index.sqlite"))
    [run] = (measured / "run").iterdir()
    return (command, "6.1", "6.12", "--within", str(run))


def _check(form: str, text: str) -> None:
    if form == "json":
        assert json.loads(text)["schema"].startswith("fsjoule.")
    elif form == "page":
        assert text.startswith(("<!DOCTYPE html>", "<!doctype html>"))
    elif form == "junit":
        assert ET.fromstring(text).tag == "testsuites"
    elif form == "markdown":
        assert text.startswith("**")
    elif form == "github":
        assert all(_COMMAND.fullmatch(line) for line in text.splitlines())
    elif form == "mail":
        message = message_from_string(text, policy=policy.default)
        assert not message.defects
        assert "simulated" in message["Subject"]
        assert message.get_content_type() == "text/plain"
        assert message["Subject"].partition(": ")[2][:20] in message.get_content()
    assert "simulated" in text


@pytest.mark.parametrize("command", ["compare", "gate", "trend"])
def test_each_command_has_each_format(command: str, fsjoule: CommandLine, measured: Path, tmp_path: Path) -> None:
    words = _words(command, measured)
    files = {form: tmp_path / f"answer.{form}" for form in FORMATS}
    done = fsjoule(*words, *(word for form, file in files.items() for word in ("--format", f"{form}={file}")))
    assert done.code == (1 if command == "gate" else 0)
    assert done.out.strip()
    for form, file in files.items():
        assert f"{form}  {file}" in done.err
        _check(form, file.read_text())
    printed = fsjoule(*words, "--format", "junit")
    assert printed.out == files["junit"].read_text()
    assert printed.code == done.code


def test_a_bisection_has_each_format(tmp_path: Path) -> None:
    view = BisectionView(Bisection(tmp_path, FakeKernelBoots(figures(None))).run())
    for form in FORMATS:
        assert renderers.RENDERERS[form].render(view, Path("answer")).strip()
    [case] = ET.fromstring(to_junit(view)).iter("testcase")
    assert case.get("name", "").startswith("first bad commit")


def test_junit_has_a_testcase_per_finding(fsjoule: CommandLine, measured: Path) -> None:
    document = fsjoule(*_words("compare", measured), "--json").document
    suite = ET.fromstring(fsjoule(*_words("compare", measured), "--format", "junit").out)[0]
    assert suite.get("name") == "fsjoule compare (simulated)"
    cases = list(suite.iter("testcase"))
    assert len(cases) == len(document["verdicts"]) == int(suite.get("tests", ""))
    failed = [case for case in cases if case.find("failure") is not None]
    assert len(failed) == document["counts"]["regressed"] == int(suite.get("failures", ""))
    [message] = {case[0].get("message", "").partition(";")[0] for case in failed}
    assert message == "regressed"
    assert "btrfs randwrite-16k throughput (simulated)" in {case.get("name") for case in failed}
    assert {case.get("classname") for case in cases} == {"virtual.quick"}
    assert document["headline"] in (suite[-1].text or "")


def test_junit_skips_what_is_open_with_its_reason(fsjoule: CommandLine, tmp_path: Path) -> None:
    run = write_kernels(tmp_path / "few", speeds={"6.1": 1.0, "6.12": 1.0}, boots=2)
    suite = ET.fromstring(fsjoule("compare", "6.1", "6.12", "--within", run, "--format", "junit").out)[0]
    skipped = [case.find("skipped") for case in suite.iter("testcase")]
    assert int(suite.get("skipped", "")) == len(skipped) > 0
    assert all(each is not None and "more boot" in each.get("message", "") for each in skipped)


class _Hostile(VerdictView):
    command = "gate"

    @property
    def headline(self) -> str:
        return "a \x00 headline"

    @property
    def simulated(self) -> bool:
        return False

    @property
    def cases(self) -> tuple[VerdictCase, ...]:
        return (VerdictCase("board.<quick>", 'ext4 "x" \x1b[31m', CaseState.FAILED, "worse & <b>\ud800</b>"),)

    def document(self) -> dict[str, object]:
        return {}

    def markdown(self) -> str:
        return ""

    def page(self, place: Path) -> str:
        return str(place)

    def print(self, console: object) -> None:
        pass


class _Forging(_Hostile):
    @property
    def headline(self) -> str:
        return "all is well\r\nBcc: all@example.org\r\n\r\nbody"

    @property
    def cases(self) -> tuple[VerdictCase, ...]:
        return (VerdictCase("a:b,c", "x", CaseState.FAILED, "50 %\n::error title=forged::y"),)


def test_names_forge_neither_commands_nor_headers() -> None:
    lines = to_github(_Forging()).splitlines()
    assert [line[:8] for line in lines] == ["::notice", "::error "]
    assert lines[1].endswith("title=fsjoule gate%3A a%3Ab%2Cc x::50 %25%0A::error title=forged::y")
    message = message_from_string(to_mail(_Forging()), policy=policy.default)
    assert (message["Bcc"], message.defects) == (None, [])
    assert message["Subject"].startswith("fsjoule gate: all is well Bcc: all@example.org")
    assert to_mail(_Hostile())
    assert to_github(_Hostile())


def test_junit_is_xml_whatever_names_hold() -> None:
    [case] = ET.fromstring(to_junit(_Hostile()).encode()).iter("testcase")
    assert case.get("classname") == "board.<quick>"
    assert case.get("name") == 'ext4 "x" \N{REPLACEMENT CHARACTER}[31m'
    assert case[0].text == "worse & <b>\N{REPLACEMENT CHARACTER}</b>"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--format", "yaml"),
            "unknown format 'yaml'\n  hint: choose from: github, json, junit, mail, markdown, page, text",
        ),
        (("--format", "junit="), "--format junit=: no file is named"),
        (("--format", "junit=absent/x.xml"), "--format junit: there is no folder absent"),
        (("--format", "junit", "--json"), "json and junit are both to be printed"),
    ],
)
def test_a_wrong_format_is_refused(words: tuple[str, ...], said: str, fsjoule: CommandLine, measured: Path) -> None:
    done = fsjoule(*_words("gate", measured), *words)
    assert done.code == 2
    assert said in done.err


def test_a_renderer_of_a_package_that_fails_loses_no_answer(
    fsjoule: CommandLine, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Theirs(dict[str, Renderer]):
        def owner(self, name: str) -> str:
            return "mylab 1.0" if name == "bad" else "fsjoule"

    def fail(_verdict: VerdictView, _file: Path) -> str:
        raise KeyError("board")

    bad = Renderer("bad", fail)
    monkeypatch.setattr(renderers, "RENDERERS", Theirs({**renderers.RENDERERS, "bad": bad}))
    said = "format bad of package mylab 1.0 failed: KeyError: 'board'"
    gated = fsjoule(*_words("gate", measured), "--format", "bad=x", "--format", "junit=y")
    assert gated.code == 1
    assert f"warning: {said}" in gated.err
    assert "junit  y" in gated.err
    compared = fsjoule(*_words("compare", measured), "--format", "bad")
    assert compared.code == 2
    assert said in compared.err
