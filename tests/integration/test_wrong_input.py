"""Wrong input of every command: a line, a hint and exit code 2, before any work."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine, command_line
from compared_runs import write_kernels

from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs

VIRTUAL = Path(__file__).parents[2] / "env" / "virtual.yaml"
# What is typed in a folder with the files of `wrong_files`, and what is said.
WRONG = {
    # words and options
    "frobnicate": "fsjoule: no such command 'frobnicate'",
    "show": "there is no run in results",
    "show aaaaab": "aaaaab is not a run folder, and no run's id in results starts so",
    "schema": "fsjoule schema: missing argument 'folder'",
    "show run --wid": "no such option: --wid (Possible options: --wide)",
    "trend --board": "fsjoule trend: option '--board' requires an argument",
    "report serve --port": "fsjoule report serve: option '--port' requires an argument",
    "gate --baseline 6.1": "gate: no candidate is named",
    "gate": "gate: no baseline is named",
    "gate 6.1 6.12 --baseline 6.1": "gate: a side is named twice",
    "advise run": "no --profile says what the device does",
    "advise run --profile logger --lg-env": "RUNS are answered from as they are, without --lg-env",
    "compare 6.1 6.12 --within run --alpha two": "invalid value for '--alpha': Input should be a valid number",
    "compare 6.1 6.12 --within run --alpha 2": "--alpha 2 is not a fraction between 0 and 1",
    "compare 6.1 6.12 --within run --metric joy": "'joy' is not one of 'throughput'",
    "gate --baseline 6.1 --candidate 6.12 --budget two": "invalid value for '--budget'",
    "ci pull pulled --runs two": "fsjoule ci pull: invalid value for '--runs'",
    "lava job --repeat two": "invalid value for '--repeat'",
    "report serve --port 99999999": "invalid value for '--port'",
    "meter watch --seconds -3": "invalid value for '--seconds'",
    "serve --name lab.example.org:8090": "--name 'lab.example.org:8090' is not the name of one host",
    "serve --name '*'": "--name '*' is not the name of one host",
    "serve --name https://lab.example.org": "--name 'https://lab.example.org' is not the name of one host",
    "export nowhere --origin x": "nowhere is not a run folder",
    "bisect --good a --bad b": "bisect needs --tree (this folder is in no kernel's repository)",
    "index series --index run.sqlite --fs btrfs,ext5": "the index has no filesystem 'ext5'",
    "index series --index run.sqlite --board nosuch": "the index has no board 'nosuch'",
    "explain 6.1 6.12 --within run -k 'read,write'": "-k 'read,write': ",
    "lava device desk --lg-env VIRTUAL --wait 60": "--wait 60: it is a number with s, m or h",
    "explain 6.1 6.12": "there is no run in results",
    "explain 6.1 6.12 --lg-env VIRTUAL --within run": "--lg-env measures now, and --within reads a run",
    "place hold --place a --place-tag soc=x -- true": "--place and --place-tag both choose the place",
    "place hold -- no-such-program": "'no-such-program' cannot be run: no such program",
    # names
    "advise run --profile nobody": "unknown profile 'nobody'",
    "advise run --profile logger --weights joy=2": "unknown weight 'joy'",
    "advise run --profile logger --kernel 9.9": "unknown kernel of these runs '9.9'",
    "advise run --profile logger --kernel 6.1 --fs ext5": "unknown filesystem of these runs 'ext5'",
    "compare 6.1 9.9 --within run": "run aaaaaa has no kernel '9.9'",
    "compare 6.1 6.12 --within run --fs ext5": "run aaaaaa has no filesystem 'ext5'",
    "compare 6.1 6.1 --within run": "both sides are the same 30 measurements",
    "gate --baseline 6.1 --candidate 6.12 --lg-env VIRTUAL --suite fast": "unknown suite 'fast'",
    "gate --baseline 6.1 --candidate 6.12 --lg-env VIRTUAL --fs ext5": "unknown filesystem 'ext5'",
    "image build --kernel 9.9": "unknown kernel '9.9'",
    "image build --recipe nobody": "unknown image recipe 'nobody'",
    "lab up --board nobody": "unknown virtual board 'nobody'",
    "lab up --name ../x": "'../x' is not a valid name of a lab",
    "suites show quick --fs ext4:nojournl": "unknown variant of ext4 'nojournl'",
    "suites show quick --fs 'ext4:mkfs=-F /dev/sdb'": "'/dev/sdb' names a device or a file",
    "lava job --device-type x --fs 'ext4:mkfs=-n'": "with -n mkfs.ext4 does not make a whole ext4",
    "compare 6.1 6.12 --within run --fs ext4:commit=60": "run aaaaaa has no filesystem 'ext4:commit=60'",
    "lava job --fs ext4:commit=60 --provision root --lg-env VIRTUAL": "can have 'ext4:commit=60' as its root",
    "suites show quick --fs 'ext4,'": "--fs 'ext4,' has an empty name",
    "suites show fast": "unknown suite 'fast'",
    "suites show quick --repeat -1": "--repeat -1: at least one repetition is needed",
    "suites show quick --size-factor 7": "--size-factor 7: it must be above 0 and at most 1",
    "board new foo --from nobody --into x": "unknown image recipe 'nobody'",
    "lava pull not-a-url 3": "'not-a-url' is no address of a LAVA server",
    "kernelci poll x --runtime r --platform p --lg-env VIRTUAL": "this is no address of KernelCI's API",
    "meter info --meter localhost:99999": "'localhost:99999' is not a meter's address",
    "index stats --index mongodb://x/y": "an index cannot be kept in 'mongodb'",
    "report build run --forge notaurl": "'notaurl' is not the address of a project",
    "trend --since 2026-13-45": "--since '2026-13-45' is not a time",
    # files and folders that are absent, empty or broken
    "show nowhere": "nowhere is not a run folder",
    "report page empty": "empty is not a run folder",
    "show broken": "broken/run.json is not JSON of ours",
    "show newer": "is of schema 'fsjoule.run/99'",
    "advise empty --profile logger": "there is no run folder at or below empty",
    "advise run --profile nofile.toml": "nofile.toml: the profile cannot be read",
    "advise run --profile bad.toml": "bad.toml:1: not valid TOML",
    "advise run --profile wrong.toml": "wrong.toml:3: fsync: Unexpected keyword argument",
    "gate --baseline 6.1 --candidate 6.12 --lg-env nofile.yaml": "nofile.yaml: the environment file cannot be read",
    "gate --baseline 6.1 --candidate 6.12 --lg-env bad.yaml": "bad.yaml:2: not YAML",
    "gate --baseline 6.1 --candidate 6.12 --lg-env list.yaml": "list.yaml:1: the file must be a mapping",
    "gate --baseline 6.1 --candidate 6.12 --lg-env VIRTUAL --policy bad.toml": "bad.toml:1: not valid TOML",
    "board check bad.yaml": "bad.yaml:2: not YAML",
    "ci matrix --output m.yml --matrix bad.toml": "bad.toml:1: not valid TOML",
    "index import nowhere": "nowhere is not a run folder",
    "serve --results nowhere": "nowhere is not a folder",
    "serve --index nope.sqlite": "there is no index at ",
    "index stats --index empty": "/empty cannot be opened: it is a folder",
    "index rebuild run --index /proc/x/i.sqlite": "/proc/x cannot be made: No such file or directory",
    "index stats --index text.txt": "text.txt is damaged, or not an index",
    "index series --index nope.sqlite": "there is no index at ",
    "bisect show run": "run holds no bisection",
    "kernel build --tree empty": "empty is not a readable git repository",
    "report serve empty": "there is no report in empty",
    "ci issue text.txt": "this is no answer of a bisection",
    # numbers that no document can keep, and empty paths, which would be the folder of the call
    "gate 6.1 6.12 --seed 99999999999999999999999": "--seed 99999999999999999999999 is out of range",
    "bisect --good a --bad b --seed -99999999999999999999999": "is out of range",
    "gate 6.1 6.12 --lg-env VIRTUAL --seed -1": "--seed -1: it is out of range",
    "lava job --hours 99999999999999999999999": "--hours 99999999999999999999999 is out of range",
    "gate 6.1 6.12 --lg-env ''": "fsjoule gate: --lg-env is empty",
    "serve --results ''": "fsjoule serve: --results is empty",
    "schema ''": "fsjoule schema: folder is empty",
    # where nothing can be written
    "schema link": "link is a link to gone/x, which does not exist",
    "report page run --output link": "--output: there is no folder WRONG/gone",
    "schema /proc/x": "nothing can be written in /proc/x",
    "advise run --profile logger -o /proc/x/y.html": "--page: there is no folder /proc/x",
    "advise run --profile logger -o empty": "--page: empty is a folder",
    "compare 6.1 6.12 --within run --page 'no where/x.html'": "--page: there is no folder no where",
    "compare 6.1 6.12 --within run --chart /proc/x/c.svg": "--chart: there is no folder /proc/x",
    "compare 6.1 6.12 --within run --page /proc/x/c.html": "--page: there is no folder /proc/x",
    "explain 6.1 6.12 --within run --svg /proc/x/e.svg": "--svg: there is no folder /proc/x",
    "gate --baseline 6.1 --candidate 6.12 --page /proc/x/y": "--page: there is no folder /proc/x",
    "gate --baseline 6.1 --candidate 6.12 --lg-env VIRTUAL --results /proc/x": "--results: nothing can be written in",
    "bisect show run --html /proc/x/y": "--html: there is no folder /proc/x",
    "ci matrix --output /proc/x/y": "--output: there is no folder /proc/x",
    "lava job --device-type x --output /proc/x/y": "--output: there is no folder /proc/x",
    "meter record --output /proc/x/y": "--output: there is no folder /proc/x",
    "report build run --output /proc/x": "--output: nothing can be written in /proc/x",
    "trend --page /proc/x/y": "--page: there is no folder /proc/x",
}


@pytest.fixture(scope="module")
def wrong_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a whole run, `run`, and with what is wrong."""
    folder = tmp_path_factory.mktemp("wrong")
    write_kernels(folder, speeds={"6.1": 1.0, "6.12": 0.9}).rename(folder / "run")
    for name, text in {
        "broken/run.json": '{"schema": ',
        "newer/run.json": '{"schema": "fsjoule.run/99"}',
        "text.txt": "hello\n",
        "bad.toml": "[profile\n",
        "wrong.toml": "[profile]\ntitle = 'x'\nfsync = 3\n",
        "bad.yaml": "targets: [\n",
        "list.yaml": "- 1\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("gone/x")
    with open_index(str(folder / "run.sqlite"), create=True) as index:
        import_runs(index, [folder / "run"])
    return folder


@pytest.fixture
def run(
    wrong_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    monkeypatch.chdir(wrong_files)
    for name in ("FSJOULE_INDEX", "LG_ENV", "LG_COORDINATOR", "LG_PLACE", "CI_PROJECT_URL"):
        monkeypatch.delenv(name, raising=False)
    # As on a fresh machine: whatever is fetched before the input is checked is not there.
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FSJOULE_DEBIAN_MIRROR", "http://127.0.0.1:9/debian")
    before = sorted(wrong_files.rglob("*"))
    yield command_line(monkeypatch, capfd)
    assert sorted(wrong_files.rglob("*")) == before


@pytest.mark.parametrize("typed", WRONG)
def test_wrong_input_is_a_line_a_hint_and_code_2(run: CommandLine, typed: str) -> None:
    done = run(*shlex.split(typed.replace("VIRTUAL", str(VIRTUAL))))
    assert (done.code, done.out) == (2, ""), done.err
    first, *hint = done.err.splitlines()
    assert first.startswith("error: ")
    assert WRONG[typed].replace("WRONG", str(Path.cwd())) in first
    assert [line[:8] for line in hint] == ["  hint: "], done.err


def test_a_wrong_address_of_the_coordinator_is_refused_before_a_service_starts(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LG_COORDINATOR", "lab:port")
    done = run("serve", "--results", "empty")
    assert (done.code, done.out) == (2, "")
    assert "LG_COORDINATOR='lab:port' is not an address" in done.err
