"""The table of the study on simulated data: a line for each size, and the published line, whose size is not known."""

from metacal.lab.paper.draw_store import DrawStore
from metacal.lab.paper.exhibits import Published, SimulatedStudy, published_figures
from metacal.lab.paper.table import Cell, TableData, setting_title
from metacal.lab.training.run_folder import RunStore

COLUMNS = {"oracle": "Oracle", "ce": "Cross-Entropy", "ls": "LS", "mc": "MC", "ce-n": "Cross-Entropy on n"}
METRICS = {"accuracy_percent": "accuracy", "ece_percent": "ece"}
NOTE = (
    "Ours: mean ± population standard deviation over draws. Every method sees the same 2n labels, but for the last "
    "column: it is fitted on the n that Meta-Calibration trains on. The paper does not say how many points it drew, so "
    "its figures have a line of their own."
)

SMOKE_NOTE = "Made at the smoke scale, one draw and few test points, to see that everything runs."


def prepare_study_table(study: SimulatedStudy, store: RunStore, scale: str = "full") -> TableData:
    """Gather what the store has of the study."""
    kept, draws = DrawStore(store.root), study.draws(scale)
    records = {draw: kept.read(draw) for draw in draws if kept.has(draw)}
    lines = []
    for metric, key in METRICS.items():
        published = {label: _published(study, label, metric) for label in COLUMNS.values()}
        lines.append(
            tuple(
                Cell("as published", label, metric, (), 0, None, figure, is_quoted=figure is not None)
                for label, figure in published.items()
            )
        )
        for size in dict.fromkeys(draw.size for draw in draws):
            of_size = [draw for draw in draws if draw.size == size]
            found = [records[draw]["methods"] for draw in of_size if draw in records]
            lines.append(
                tuple(
                    Cell(
                        f"2n = {2 * size} labels",
                        label,
                        metric,
                        tuple(100 * methods[method][key] for methods in found),
                        len(of_size),
                        None,
                        None,
                    )
                    for method, label in COLUMNS.items()
                )
            )
    setting = study.setting(scale)
    note = f"{NOTE} {SMOKE_NOTE}" if setting else NOTE
    title = setting_title(study.heading, setting)
    return TableData(study.name, title, study.claim, note, tuple(COLUMNS.values()), tuple(lines), None)


def _published(study: SimulatedStudy, label: str, metric: str) -> Published | None:
    return published_figures().get((study.label, "synthetic", "logistic regression", label, metric))
