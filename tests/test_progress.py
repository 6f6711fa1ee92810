"""What a fit says of itself where there is no terminal."""

import pytest

from ksivi.training import Chunk, _progress, stages


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    now = [100.0]
    monkeypatch.setattr(_progress.time, "perf_counter", lambda: now[0])
    return now


def chunk(step, speed):
    return Chunk(step, 20_000, 1.0, 0.0, speed, list)


def said(capsys):
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("speed", "left"), [(1_000.0, "19 s"), (100.0, "3 min"), (1.0, "5.3 h"), (0.0, "h left")]
)
def test_time_left_is_said_off_a_terminal(clock, capsys, speed, left):
    lines = stages(None)
    lines.stage("fit: training")
    lines(chunk(500, speed))
    assert said(capsys) == ["[  0.0 s] fit: training"]
    clock[0] += 6
    lines(chunk(1_000, speed))
    lines(chunk(1_500, speed))
    (line,) = said(capsys)
    assert line.startswith("[  6.0 s] 1,000 of at most 20,000 steps, at most ")
    assert left in line


def test_a_long_stage_says_how_many_evaluations_it_has_made(clock, capsys):
    """The speed is that of the time since the line before."""
    lines = stages(None)
    lines.evaluated(4_000)
    lines.stage("fit: checks")
    for count in (4_500, 10_000):
        clock[0] += 4
        lines.evaluated(count)
    assert said(capsys) == [
        "[  0.0 s] fit: checks",
        "[  8.0 s] 10,000 evaluations of the log density so far, 750 per second",
    ]


def test_a_bar_shows_the_same(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(_progress.sys.stderr, "isatty", lambda: True, raising=False)
    bar = stages(None)
    try:
        bar.stage("fit: checks")
        bar.evaluated(12_000)
        (task,) = bar._display.tasks
        assert task.description == "fit: checks, 12,000 evaluations"
        bar.stage("fit: training")
        bar(chunk(500, 100.0))
        assert (task.description, task.completed, task.total) == ("fit: training", 500, 20_000)
    finally:
        bar.close()


def test_nothing_is_said_if_not_asked():
    assert stages(False) is None
