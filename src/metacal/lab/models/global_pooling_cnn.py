"""The text network for 20 Newsgroups: convolutions over frozen word vectors and a global maximum."""

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError

FILTERS = 128
WIDTH = 5
RECEPTIVE_FIELD = 21
"""Words that a value before the global maximum depends on: 5, + 4 by pooling, + 4, + 4 by pooling, + 4."""


class GlobalPoolingCNN(nn.Module):
    """Three convolutions, the maximum over the document, a hidden layer and the classifier.

    The convolutions have 128 filters of width 5 without padding, each followed by ReLU, the first two by max-pooling
    of width 5 and stride 1. The hidden layer has 128 units with ReLU and dropout 0.3.

    Every value before the global maximum depends on 21 words. Values that depend on padding alone are all equal, and
    one of them is enough for the maximum, so a document padded to its length + 21 has the same features and gradients
    as at full width. The batch is sorted by length and run in chunks, each padded for its longest document.

    Args:
        num_classes: K.
        embeddings: frozen word vectors ``(words, d)``; token 0 is the padding.
        chunk: documents to run together (their lengths are read on the host); None runs the batch at full width.

    Examples:
        >>> import torch
        >>> model = GlobalPoolingCNN(20, torch.randn(50, 100))
        >>> sum(p.numel() for p in model.parameters())
        247316
        >>> tokens = torch.zeros(2, 1000, dtype=torch.int32)
        >>> tokens[:, -3:] = torch.tensor([[1, 2, 3], [0, 4, 5]])
        >>> tuple(model(tokens).shape), model.head.in_features
        ((2, 20), 128)
    """

    embeddings: Tensor

    def __init__(self, num_classes: int, embeddings: Tensor, chunk: int | None = 8) -> None:
        super().__init__()
        if not isinstance(embeddings, Tensor) or embeddings.ndim != 2 or not embeddings.is_floating_point():
            raise InvalidTypeError("`embeddings` must be a float tensor (words, d).")
        if chunk is not None and chunk < 1:
            raise InvalidValueError(f"`chunk` must be None or an integer >= 1, got {chunk}.")
        self.chunk = chunk
        self.register_buffer("embeddings", embeddings.detach().clone())
        pooling = nn.MaxPool1d(WIDTH, stride=1)
        self.convolutions = nn.Sequential(
            *(nn.Conv1d(embeddings.shape[1], FILTERS, WIDTH), nn.ReLU(inplace=True), pooling),
            *(nn.Conv1d(FILTERS, FILTERS, WIDTH), nn.ReLU(inplace=True), pooling),
            *(nn.Conv1d(FILTERS, FILTERS, WIDTH), nn.ReLU(inplace=True)),
        )
        self.hidden = nn.Sequential(nn.Linear(FILTERS, FILTERS), nn.ReLU(inplace=True), nn.Dropout(0.3))
        self.head = nn.Linear(FILTERS, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``(n, K)`` of tokens ``(n, L)``, left-padded with 0, L >= 21."""
        if tokens.ndim != 2 or tokens.shape[1] < RECEPTIVE_FIELD or tokens.is_floating_point():
            got = f"{tokens.dtype} {tuple(tokens.shape)}"
            raise InvalidValueError(f"`tokens` must be integers (n, L) with L >= {RECEPTIVE_FIELD}, got {got}.")
        if self.chunk is None or not len(tokens) or tokens.is_meta:  # lengths of meta tensors cannot be read
            features = self._features(tokens)
        else:
            features = self._chunked(tokens, self.chunk)
        logits: Tensor = self.head(self.hidden(features))
        return logits

    def _features(self, tokens: Tensor) -> Tensor:
        """Maximum of every filter over the document, ``(n, 128)``.

        Words are convolved and pooled as an image of height 1 in channels-last order, which avoids copies.
        """
        words = nn.functional.embedding(tokens.int() if tokens.dtype is torch.int16 else tokens, self.embeddings)
        found = words.transpose(1, 2).unsqueeze(2)
        for layer in self.convolutions:
            if isinstance(layer, nn.Conv1d):
                found = nn.functional.conv2d(found, layer.weight.unsqueeze(2), layer.bias)
            elif isinstance(layer, nn.MaxPool1d):
                found = nn.functional.max_pool2d(found, (1, WIDTH), stride=1)
            else:
                found = layer(found)
        return found.amax((2, 3))

    def _chunked(self, tokens: Tensor, chunk: int) -> Tensor:
        """`_features`, computed for a few documents of similar length at a time."""
        full = tokens.shape[1]
        from_the_end = torch.arange(full, 0, -1, device=tokens.device)
        lengths, order = torch.where(tokens != 0, from_the_end, 0).amax(1).sort(descending=True)
        parts = []
        for rows, longest in zip(torch.split(order, chunk), lengths[::chunk].tolist(), strict=True):
            width = min(full, longest + RECEPTIVE_FIELD)
            parts.append(self._features(tokens[:, full - width :].index_select(0, rows)))
        return torch.cat(parts).index_select(0, order.argsort())
