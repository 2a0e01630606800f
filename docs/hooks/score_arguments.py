"""Signatures of measures with the arguments that all share: ``**scores`` is shown as ``logits``, ``probs`` and so on.

A griffe extension; the parameters are those that Python itself shows.
"""

import inspect

import griffe

from metacal import functional


class ScoreArguments(griffe.Extension):
    """Replaces the parameters of functions of `metacal.functional` that take ``**scores: Unpack[ScoreArguments]``."""

    def on_function(self, *, func, **_):
        takes_scores = "scores" in func.parameters and hasattr(functional, func.name)
        if takes_scores and func.parameters["scores"].kind is griffe.ParameterKind.var_keyword:
            func.parameters = griffe.Parameters(
                *(
                    griffe.Parameter(
                        each.name,
                        annotation=getattr(each.annotation, "__name__", str(each.annotation)).replace("torch.", ""),
                        kind=griffe.ParameterKind.keyword_only,
                        default=None if each.default is each.empty else repr(each.default),
                    )
                    for each in inspect.signature(getattr(functional, func.name)).parameters.values()
                )
            )
