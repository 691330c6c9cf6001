"""Compiled programs that the commands keep: their folder, `--no-cache`, and the settings of JAX."""

import os
import pathlib
import subprocess
import sys
import types

import pytest

from jaxrbd import cli
from jaxrbd.cli import cache

# The environment of a user, without the settings of JAX for the tests.
USER = {name: x for name, x in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
RUN = "import sys; from jaxrbd.cli import main; sys.exit(main())"


def programs(folder):
    """The files of compiled programs in a folder, with their times of change."""
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*-cache")}


@pytest.fixture
def settings(monkeypatch):
    """What `keep_programs` changes in the settings of JAX, from the defaults of JAX."""
    changed = {}
    defaults = {"jax_compilation_cache_dir": None, "jax_enable_compilation_cache": True}
    config = types.SimpleNamespace(update=changed.__setitem__, **defaults)
    monkeypatch.setattr(cache, "jax", types.SimpleNamespace(config=config))
    for name in [name for name in os.environ if name.startswith("JAX_")]:
        monkeypatch.delenv(name)
    return changed


def keep(*words):
    """Parse a command, and apply its cache options."""
    cache.keep_programs(cli._parser().parse_args(words))


def test_the_second_run_compiles_nothing(tmp_path):
    """Two processes, because JAX decides once per process whether it uses a cache."""
    places = dict.fromkeys(("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"), str(tmp_path))
    runs, kept = [], []
    for _ in range(2):
        runs.append(
            subprocess.run(
                [sys.executable, "-c", RUN, "info", "pendulum"],
                env={**USER, **places},
                capture_output=True,
                text=True,
                check=True,
            )
        )
        kept.append({path: path.stat().st_mtime_ns for path in tmp_path.rglob("*-cache")})
    first, second = runs
    folder = next(tmp_path.rglob("programs"))
    assert folder.parent.name == "jaxrbd"
    assert first.stderr.startswith(f"jaxrbd: compiled programs are kept in {folder}")
    assert first.stderr.count("\n") == 1
    assert second.stderr == ""
    assert second.stdout == first.stdout
    assert any("center_of_mass" in path.name for path in kept[0])
    assert len(kept[0]) > 5  # also programs that compile in less than a second
    assert kept[1] == kept[0]


def test_the_option_switches_every_cache_off(settings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cache, "user_folder", lambda: tmp_path / "programs")
    for chosen in (False, True):
        if chosen:
            monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "chosen"))
        keep("rollout", "--no-cache")
        assert settings == {"jax_enable_compilation_cache": False}
        assert capsys.readouterr().err == ""
        assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("folder", ["chosen", ""])  # empty: the user wants no cache
def test_the_variable_of_jax_chooses_the_folder(folder, settings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cache, "user_folder", lambda: tmp_path / "programs")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", folder)
    keep("rollout")
    assert not settings
    assert capsys.readouterr().err == ""
    assert not [*tmp_path.iterdir()]


def test_a_cache_that_is_switched_off_stays_off(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "user_folder", lambda: tmp_path / "programs")
    cache.jax.config.jax_enable_compilation_cache = False
    keep("rollout")
    assert not settings
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_cannot_be_made_is_a_warning(settings, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cache, "user_folder", lambda: tmp_path / "file" / "programs")
    keep("rollout")
    said = capsys.readouterr().err
    assert said.startswith("jaxrbd: warning: compiled programs are not kept: ")
    assert str(tmp_path / "file") in said
    assert said.count("\n") == 1
    assert not settings


def test_a_folder_that_cannot_be_written_is_a_warning(settings, tmp_path, monkeypatch, capsys):
    def refuse(**options):
        raise PermissionError(13, "Permission denied", str(options["dir"]))

    monkeypatch.setattr(cache, "user_folder", lambda: tmp_path)
    monkeypatch.setattr(cache.tempfile, "TemporaryFile", refuse)
    keep("rollout")
    assert f"are not kept: {tmp_path}: Permission denied" in capsys.readouterr().err
    assert not settings


def test_a_user_without_a_home_folder_is_a_warning(settings, monkeypatch, capsys):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(pathlib.Path, "home", no_home)
    keep("info", "pendulum")
    assert "are not kept: Could not determine home directory." in capsys.readouterr().err
    assert not settings


def test_the_settings_of_jax_that_are_set(settings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cache, "user_folder", lambda: tmp_path / "programs")
    keep("rollout")
    assert f"are kept in {tmp_path / 'programs'}" in capsys.readouterr().err
    least = "jax_persistent_cache_min_compile_time_secs"
    assert settings == {"jax_compilation_cache_dir": str(tmp_path / "programs"), least: 0}
    settings.clear()
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "2")
    keep("rollout")
    assert settings == {"jax_compilation_cache_dir": str(tmp_path / "programs")}
    assert capsys.readouterr().err == ""  # the folder was there


@pytest.mark.parametrize("command", [["bench"], ["check", "pendulum"], ["completion", "bash"]])
def test_commands_that_keep_no_programs(command, settings, capsys):
    keep(*command)
    assert not settings
    with pytest.raises(SystemExit):
        cli.main([*command, "--no-cache"])
    assert "unrecognized arguments: --no-cache" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {"XDG_CACHE_HOME": "/fast"}, "/fast/jaxrbd/programs"),
        ("linux", {"XDG_CACHE_HOME": "fast"}, "/home/ada/.cache/jaxrbd/programs"),
        ("linux", {}, "/home/ada/.cache/jaxrbd/programs"),
        ("darwin", {"XDG_CACHE_HOME": "/fast"}, "/home/ada/Library/Caches/jaxrbd/programs"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/jaxrbd/programs"),
        ("win32", {}, "/home/ada/AppData/Local/jaxrbd/programs"),
    ],
)
def test_the_folder_of_a_platform(platform, variables, folder, monkeypatch):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(pathlib.Path, "home", lambda: pathlib.Path("/home/ada"))
    assert cache.user_folder() == pathlib.Path(folder)
