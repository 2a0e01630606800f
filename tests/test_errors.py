"""Missing packages are named with the extra that brings them; what no extra brings is left alone."""

import importlib
import subprocess
import sys

import pytest

from metacal.errors import MissingExtraError, needs


def test_what_is_missing_without_a_name_is_called_after_its_extra():
    """Lightning's TensorBoard logger raises such an error."""
    with (
        pytest.raises(MissingExtraError, match=r"`tensorboard` must be .*: pip install 'metacal\[tensorboard\]'"),
        needs("tensorboard"),
    ):
        raise ModuleNotFoundError("Neither `tensorboard` nor `tensorboardX` is available.")


@pytest.mark.parametrize("said", ["metacal.lab.training", "metacal.lab.engines", "metacal.lab.paper.tables"])
def test_the_lab_names_its_extra_to_who_imports_it(said):
    script = f"import sys; sys.modules['pydantic'] = None; import {said}"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "MissingExtraError: `pydantic` must be installed for this: pip install 'metacal[lab]'" in run.stderr


@pytest.mark.parametrize(("package", "extra"), [("safetensors", "lab"), ("transformers", "transformers")])
def test_a_missing_package_is_named_with_an_extra_that_brings_it(package, extra):
    with pytest.raises(MissingExtraError, match=rf"`{package}` .* 'metacal\[{extra}\]'"), needs("lab"):
        raise ModuleNotFoundError(name=package)


def test_a_module_of_ours_that_is_missing_is_no_missing_extra():
    with pytest.raises(ModuleNotFoundError, match=r"metacal\.nothing"), needs("cli"):
        importlib.import_module("metacal.nothing")
