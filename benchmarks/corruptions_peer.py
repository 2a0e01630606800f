"""The peer's side of `benchmarks.corruptions`: PyPI's imagecorruptions, in an environment of its own.

It reads one JSON request a line and answers each with one: how long it took to corrupt some images one by one, and the
corrupted images in a file if that was asked for. Nothing of ours is imported: the peer needs an older NumPy.
"""

import ast
import inspect
import json
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from imagecorruptions import corruptions
from PIL import Image


def adapted(name: str, constants: Any) -> Callable[..., Any]:
    """The peer's function with other constants: the list in ``c = [...][severity - 1]`` is replaced in its source."""
    function = getattr(corruptions, name)
    if constants is None:
        return function  # type: ignore[no-any-return]
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "c":
            assert isinstance(node.value, ast.Subscript)
            node.value.value = ast.parse(repr(constants), mode="eval").body
    space: dict[str, Any] = dict(vars(corruptions))
    exec(compile(ast.fix_missing_locations(tree), f"<{name}>", "exec"), space)
    return space[name]  # type: ignore[no-any-return]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Corrupt images one by one, as the package does it."""
    images = np.load(request["images"])
    corrupt = adapted(request["name"], request["constants"])
    np.random.seed(0)
    start = time.perf_counter()
    found = [np.uint8(corrupt(Image.fromarray(image), request["severity"])) for image in images]
    seconds = time.perf_counter() - start
    if request.get("out"):
        np.save(request["out"], np.stack(found))
    return {"seconds": seconds}


def main() -> None:
    """Answer until there is no further line."""
    warnings.simplefilter("ignore")
    plain = corruptions.gaussian
    # scikit-image renamed this argument; the versions that had the old one have no build for this Python.
    corruptions.gaussian = lambda image, sigma, multichannel=False, **options: plain(
        image, sigma, channel_axis=-1 if multichannel else None, **options
    )
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
