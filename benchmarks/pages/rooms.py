"""The rooms of ``src/metacal`` and who imports whom, read from the files themselves, as one picture."""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean

BASE = ("errors", "files", "seeding", "bf16")
"""Single files at the bottom, on which any room may stand: drawn once, without arrows."""
VERBS = ("cli", "lab.cli")
"""The one arrow from the library to the lab: `cli/app.py` gathers the lab's verbs where the extra is installed."""
HANDED_UP = ("evaluation", "reporting")
"""Not drawn: an `Evaluation` imports the pages above it inside the methods that draw it."""
WIDTH, BOX, FLOOR, GAP, MARGIN, TOP = 104, 36, 86, 22, 20, 60
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1f2937}"
    ".box{fill:#fff;stroke:#3b6ea5;stroke-width:1.5}.lab .box{stroke:#a5603b}"
    ".arrow{fill:none;stroke:#8a94a3;stroke-width:1.3;marker-end:url(#tip)}.verbs{stroke-dasharray:5 4}"
    ".area{fill:#f3f6fa}.lab .area{fill:#faf5f1}.name{font-weight:600}"
)

Graph = dict[str, set[str]]


def room_of(parts: tuple[str, ...]) -> str:
    """``("functional", "binning")`` -> ``functional``, ``("lab", "data", "files")`` -> ``lab.data``."""
    return ".".join(parts[:2] if parts[:1] == ("lab",) else parts[:1])


def import_graph(package: Path) -> Graph:
    """For each room, the other rooms that a file of it imports, at its top or in a function; but see `HANDED_UP`."""
    graph: Graph = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        own = room_of(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            used = {room_of(tuple(name.split(".")[1:])) for name in names if name.split(".")[0] == package.name}
            graph.setdefault(own, set()).update(used)
    rooms = {room for room in graph if room not in ("", "lab", "__main__", *BASE)}
    return {
        room: {used for used in graph[room] & rooms if used != room and (room, used) != HANDED_UP}
        for room in sorted(rooms)
    }


def reduced(graph: Graph) -> Graph:
    """Without the arrows that a longer way makes superfluous."""
    below = {room: {further for used in graph[room] for further in _reach(graph, used)} for room in graph}
    return {room: graph[room] - below[room] for room in graph}


def floors(graph: Graph) -> list[list[str]]:
    """Rooms by the longest way down, the lowest first; one that its own half uses only higher up is raised to there.

    Raises:
        ValueError: rooms import each other.
    """
    levels: dict[str, int] = {}
    while len(levels) < len(graph):
        ready = [room for room in graph if room not in levels and graph[room] <= levels.keys()]
        if not ready:
            raise ValueError(f"rooms must not import each other, got a circle among {sorted(graph.keys() - levels)}")
        levels |= {room: max((levels[used] + 1 for used in graph[room]), default=0) for room in ready}
    for room in sorted(graph, key=lambda room: -levels[room]):
        users = [user for user in graph if room in graph[user] and _is_lab(user) == _is_lab(room)]
        levels[room] = min((levels[user] - 1 for user in users), default=levels[room])
    return [[room for room in graph if levels[room] == level] for level in range(max(levels.values()) + 1)]


def picture(package: Path) -> str:
    """An SVG: the library on the left, the lab on the right, each room above those that it imports."""
    graph = import_graph(package)
    has_verbs = VERBS[1] in graph[VERBS[0]]
    graph[VERBS[0]] = graph[VERBS[0]] - {VERBS[1]}
    levels, arrows = floors(graph), reduced(graph)
    library, lab = ([[room for room in rooms if _is_lab(room) == side] for rooms in levels] for side in (False, True))
    middle = MARGIN + _breadth(library) + 3 * GAP
    across = _placed(library, MARGIN, arrows) | _placed(lab, middle, arrows)
    down = {room: TOP + FLOOR * number for number, rooms in enumerate(reversed(levels)) for room in rooms}
    places = {room: (across[room], down[room]) for room in graph}
    width, height = middle + _breadth(lab) + MARGIN, TOP + FLOOR * (len(levels) - 1) + BOX + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="Rooms of metacal; an arrow says: imports">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#8a94a3"/></marker></defs>',
        *_area("metacal: the library", MARGIN / 2, _breadth(library) + MARGIN, height, ""),
        *_area("metacal.lab", middle - MARGIN / 2, _breadth(lab) + MARGIN, height, "lab"),
        *(_arrow(places[room], places[used]) for room in graph for used in sorted(arrows[room])),
        *([_arrow(places[VERBS[0]], places[VERBS[1]], "arrow verbs", is_upwards=True)] if has_verbs else []),
        *(_box(room.removeprefix("lab."), *places[room], "lab" if _is_lab(room) else "") for room in graph),
        _text(" · ".join(f"{name}.py" for name in BASE), width / 2, height - MARGIN / 2),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _reach(graph: Graph, room: str) -> set[str]:
    """All rooms that are below a room, without itself."""
    return {further for used in graph[room] for further in {used, *_reach(graph, used)}}


def _is_lab(room: str) -> bool:
    return room.startswith("lab")


def _breadth(levels: Iterable[list[str]]) -> int:
    count = max(len(rooms) for rooms in levels)
    return count * WIDTH + (count - 1) * GAP


def _placed(levels: list[list[str]], start: float, arrows: Mapping[str, set[str]]) -> dict[str, float]:
    """The middle of each room: floors are centred, and rooms in the order of what they stand on."""
    breadth, places, below = _breadth(levels), dict[str, float](), set[str]()
    for rooms in levels:
        known = {room: [places[used] for used in arrows[room] if used in places] for room in rooms}
        order = sorted((room for room in rooms if arrows[room] & below), key=lambda room: fmean(known[room]))
        for number, room in enumerate(room for room in rooms if not arrows[room] & below):
            order.insert(0 if number % 2 else len(order), room)  # at the sides, so that no arrow runs behind a box
        first = start + (breadth - _breadth([rooms])) / 2 + WIDTH / 2
        places |= {room: first + number * (WIDTH + GAP) for number, room in enumerate(order)}
        below = set(rooms)
    return places


def _area(title: str, x: float, width: float, height: float, kind: str) -> list[str]:
    box = f'<rect class="area" x="{x:g}" y="4" width="{width:g}" height="{height - 34:g}" rx="8"/>'
    return [f'<g class="{kind}">{box}</g>', _text(title, x + 10, 22, "start", "name")]


def _box(name: str, x: float, y: float, kind: str) -> str:
    corner = f'x="{x - WIDTH / 2:g}" y="{y - BOX / 2:g}" width="{WIDTH}" height="{BOX}" rx="6"'
    return f'<g class="{kind}"><rect class="box" {corner}/>{_text(name, x, y + 5)}</g>'


def _arrow(top: tuple[float, float], foot: tuple[float, float], kind: str = "arrow", is_upwards: bool = False) -> str:
    (x, y), (to_x, to_y) = top, foot
    if is_upwards:
        return f'<path class="{kind}" d="M{x + WIDTH / 4:g} {y - BOX / 2:g}L{to_x - WIDTH / 2:g} {to_y:g}"/>'
    y, to_y, gap = y + BOX / 2, to_y - BOX / 2, FLOOR - BOX
    curve = f"M{x:g} {y:g}C{x:g} {y + gap / 2:g} {to_x:g} {y + gap / 2:g} {to_x:g} {y + gap:g}"
    return f'<path class="{kind}" d="{curve}{"" if y + gap == to_y else f"V{to_y:g}"}"/>'


def _text(text: str, x: float, y: float, anchor: str = "middle", kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{text}</text>'
