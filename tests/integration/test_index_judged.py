"""How a trend judges only series with something new, on every database."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from nights import Nights
from sqlalchemy import Connection, func, select, text, tuple_, update

from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Figure, Metric
from fsjoule.model.series import Order, Where
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.store.index import trend as index_trend
from fsjoule.store.index.database import Index
from fsjoule.store.index.importer import import_runs, rebuild
from fsjoule.store.index.judged import keep_verdicts, kept_verdicts
from fsjoule.store.index.retention import Retention, prune
from fsjoule.store.index.schema import judged_series, measurements, runs
from fsjoule.store.index.trend import trend_reader
from fsjoule.store.trend_rows import KeptVerdict
from fsjoule.verdicts.trend import trend as trend_module
from fsjoule.verdicts.trend.trend import Trend, trend_of

NewLocation = Callable[[], str]
NIGHTS = 12
STEPS = 10
EVERYTHING = Where()
# What is asked in turn: where, by what, which figures, how many measurements.
QUESTIONS: tuple[tuple[Where, Order, tuple[Metric, ...], int | None], ...] = (
    (EVERYTHING, Order.TIME, (), None),
    (EVERYTHING, Order.KERNEL, (), None),
    (EVERYTHING, Order.TIME, (Metric.THROUGHPUT, Metric.CPU), 70),
    (Where(branches=("topic",)), Order.TIME, (), 50),
    (Where(boards=("one",), since_utc="2026-01-04"), Order.TIME, (), None),
)


def looked_at(index: Index, where: Where = EVERYTHING, finder: RupturesFinder | None = None, **options: Any) -> Trend:
    """The trend, which is checked against judging everything again, and kept."""
    found, anew = (
        trend_of(trend_reader(index, where, anew=again, **options), all_names=True, finder=finder)
        for again in (False, True)
    )
    assert found == anew
    assert len(anew.news.judged) == anew.series
    keep_verdicts(index, found.news.question, found.news.verdicts)
    return found


def boards_of(trend: Trend) -> set[str]:
    """The boards whose series were judged."""
    return {history.series.series.board for _, one in trend.news.judged.values() for history, _ in one.histories}


def some_lab(results: Path, seed: int, count: int = NIGHTS) -> list[Path]:
    """Runs of two boards, some of a topic branch, some of two kernels, with changes of level and gaps."""
    rng = random.Random(seed)
    folders: list[Path] = []
    for number, board in enumerate(("one", "two")):
        step, double = rng.randrange(count // 3, count), rng.random() < 0.5

        def speed(night: int, _fs: str, _pattern: object, _kernel: str, step: int = step) -> Figure:
            return None if night % 7 == 3 else 0.8 if night >= step else 1.0

        def kernels(night: int, double: bool = double) -> tuple[str, ...]:
            return ("6.1", "sid") if double and night % 3 else ("6.1",)

        nights = Nights(
            prefix=f"{board}-",
            board=board,
            seed=seed + number,
            speed=speed,
            kernels=kernels,
            release=lambda night, label: f"{label}.{night // 2}",
            versions=lambda night: {"branch": "topic" if night % 4 == 1 else "main"},
            filesystems=("ext4",),
            boots=2,
        )
        folders += nights.write(results, count)
    return folders


class TestJudging:
    """Verdicts that are kept."""

    def test_only_series_with_something_new_are_judged_again(self, index: Index, results: Path) -> None:
        folders = some_lab(results, 1, 30)
        import_runs(index, [folder for folder in folders if folder != folders[-1]])
        first = looked_at(index)
        assert len(first.news.judged) == first.series == 4
        assert first.changes
        again = looked_at(index)
        assert (again, dict(again.news.judged)) == (first, {})
        import_runs(index, [folders[-1]])
        then = looked_at(index)
        assert boards_of(then) == {"two"}
        assert len(then.news.judged) == 2

    @pytest.mark.parametrize("seed", range(2))
    def test_whatever_happens_the_trend_is_that_of_judging_everything_again(
        self, index: Index, results: Path, seed: int
    ) -> None:
        rng = random.Random(seed)
        folders = some_lab(results, seed)
        away = results.parent / "away"
        away.mkdir()
        late = [folder.rename(away / folder.name) for folder in rng.sample(folders, len(folders) // 2)]
        import_runs(index, [results])
        taken = 0
        for _ in range(STEPS):
            self.change(index, results, late, rng)
            for where, order, metrics, at_most in QUESTIONS:
                found = looked_at(index, where, order=order, metrics=metrics, at_most=at_most)
                taken += found.series - len(found.news.judged)
        assert taken > STEPS * len(QUESTIONS) / 4  # most of what happens is about one board

    def change(self, index: Index, results: Path, late: list[Path], rng: random.Random) -> None:
        """One of the things that happen to an index."""
        match rng.randrange(9):
            case 0 | 1 | 2 if late:
                folder = late.pop(rng.randrange(len(late)))
                import_runs(index, [folder.rename(results / folder.name)])
            case 3:
                prune(index, Retention(f"2026-01-{rng.randrange(1, 8):02d}T00:00:00Z"))
            case 4:
                # A folder has been deleted.
                shutil.rmtree(rng.choice(sorted(each for each in results.iterdir())))
                rebuild(index, [results])
            case 5:
                # Whoever rebuilds with another fsjoule may get other figures of the same measurements.
                with index.writing() as connection:
                    run = self.some_run(connection, rng)
                    changed = "throughput_mib_per_s = throughput_mib_per_s * 1.0000001"
                    connection.execute(text(f"UPDATE measurements SET {changed} WHERE run = {run}"))
            case 6:
                with index.writing() as connection:
                    run = self.some_run(connection, rng)
                    role = rng.choice(["'reference'", "NULL"])
                    connection.execute(text(f"UPDATE runs SET kernel_role = {role} WHERE id = {run}"))
            case 7 | 8 as which:
                # Rows exchange a value, so that its sum over the series stays.
                self.exchange(index, ("throughput_mib_per_s", "kernel")[which - 7], rng)
            case _:
                pass

    def exchange(self, index: Index, column: str, rng: random.Random) -> None:
        """Two rows of one series, with different values, exchange them."""
        exchanged = measurements.c[column]
        keys = (measurements.c.run, measurements.c.number)
        with index.writing() as connection:
            number = rng.choice(connection.execute(select(measurements.c.series).distinct()).scalars().all())
            chosen = select(*keys, exchanged).where(measurements.c.series == number, exchanged.is_not(None))
            rows = connection.execute(chosen.order_by(*keys)).all()
            one = rng.choice(rows)
            other = rng.choice([row for row in rows if row[2] != one[2]] or [one])
            for row, value in ((one, other[2]), (other, one[2])):
                here = tuple_(*keys) == tuple_(*row[:2])
                connection.execute(update(measurements).where(here).values({column: value}))

    def some_run(self, connection: Connection, rng: random.Random) -> int:
        return rng.choice(connection.execute(select(runs.c.id).order_by(runs.c.id)).scalars().all())

    @pytest.mark.parametrize("column", ["throughput_mib_per_s", "kernel"])
    def test_a_series_whose_measurements_exchange_a_value_is_judged_again(
        self, index: Index, results: Path, column: str
    ) -> None:
        some_lab(results, 1)
        import_runs(index, [results])
        looked_at(index)
        rng = random.Random(0)
        for _ in range(STEPS):
            self.exchange(index, column, rng)
            # A run that has several kernels by now gives its other series labels.
            assert looked_at(index).news.judged

    @pytest.mark.parametrize("run_cost", [0, 10**9])
    def test_another_limit_reads_other_measurements(
        self, index: Index, results: Path, monkeypatch: pytest.MonkeyPatch, run_cost: int
    ) -> None:
        # Both ways of reading, which an index of this size would not choose by itself.
        monkeypatch.setattr(index_trend, "_RUN_COST", run_cost)
        some_lab(results, 1)
        import_runs(index, [results])
        read = [looked_at(index, Where(branches=("topic",)), at_most=limit).measurements for limit in (8, 16, 8, None)]
        assert read[0] == read[2] < read[1] < read[3]

    def test_other_rules_judge_everything_again(
        self, index: Index, results: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        some_lab(results, 1, 30)
        import_runs(index, [results])
        before = looked_at(index)
        assert before.changes
        # A later fsjoule, whose detector or method is another.
        deaf = RupturesFinder(penalty=1e9)
        monkeypatch.setattr(trend_module, "RupturesFinder", lambda: deaf)
        found = looked_at(index, finder=deaf)
        assert (len(found.news.judged), found.changes) == (4, ())
        for number in (-1, -2):
            monkeypatch.setattr(trend_module, "METHOD", number)
            assert len(looked_at(index, finder=deaf).news.judged) == 4
            assert not looked_at(index, finder=deaf).news.judged

    def test_another_order_of_kernels_judges_trends_by_kernel_again(
        self, index: Index, results: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        some_lab(results, 1)
        import_runs(index, [results])
        looked_at(index, order=Order.KERNEL)
        assert not looked_at(index, order=Order.KERNEL).news.judged
        # A later fsjoule that knows another rule.
        order: Any = Kernel.order
        monkeypatch.setattr(Kernel, "order", property(lambda kernel: order.fget(kernel)[::-1]))
        assert looked_at(index, order=Order.KERNEL).news.judged

    def test_several_trends_may_keep_verdicts_at_once(self, index: Index, results: Path) -> None:
        some_lab(results, 1)
        import_runs(index, [results])
        questions = [bytes([number]) * 16 for number in range(2)]

        def keep(number: int) -> None:
            verdicts = dict.fromkeys(range(1, 5), KeptVerdict(bytes([number]) * 16, str(number)))
            for question in questions:
                keep_verdicts(index, question, verdicts)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(keep, range(12), timeout=60))
        with index.reading() as connection:
            for question in questions:
                kept = kept_verdicts(connection, question, range(1, 5))
                assert set(kept) == {1, 2, 3, 4}
                assert all(one.made_from == bytes([int(one.histories)]) * 16 for one in kept.values())
                assert len(set(kept.values())) == 1

    def test_questions_that_nobody_asks_any_more_are_forgotten(self, index: Index, results: Path) -> None:
        some_lab(results, 1)
        import_runs(index, [results])
        looked_at(index, metrics=(Metric.CPU,))
        with index.writing() as connection:
            connection.execute(text("UPDATE judged_series SET judged_utc = '2026-01-01T00:00:00Z'"))
        looked_at(index)
        with index.reading() as connection:
            counted = select(func.count(), func.min(judged_series.c.judged_utc)).select_from(judged_series)
            count, oldest = connection.execute(counted).one()
        assert count == 4
        assert oldest > "2026-02"
