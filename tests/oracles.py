"""Slow, obvious NumPy loops that the fast code is held against. Nothing here is imported by metacal."""

import math
from itertools import pairwise

import numpy as np


def softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    exps = np.exp(shifted)
    return exps / exps.sum(axis=1, keepdims=True)


def top_label(probs, targets):
    return probs.max(axis=1), probs.argmax(axis=1) == targets


def bin_number(confidence, num_bins):
    """The bin m with m/M < confidence <= (m+1)/M, edges rounded to the confidence's own dtype."""
    for m in range(num_bins - 1):
        if confidence <= np.asarray((m + 1) / num_bins, dtype=confidence.dtype):
            return m
    return num_bins - 1


def norm_of(gaps, weights, norm):
    if norm == "max":
        return max(abs(gap) for gap in gaps)
    if norm == "l2":
        return math.sqrt(sum(w * gap**2 for gap, w in zip(gaps, weights)))
    return sum(w * abs(gap) for gap, w in zip(gaps, weights))


def error_of_groups(groups, total, norm="l1"):
    """``groups``: lists of (confidence, correct)."""
    gaps, weights = [], []
    for group in groups:
        if group:
            confidence = math.fsum(float(c) for c, _ in group) / len(group)
            accuracy = sum(bool(r) for _, r in group) / len(group)
            gaps.append(accuracy - confidence)
            weights.append(len(group) / total)
    return norm_of(gaps, weights, norm)


def ece(confidences, correct, num_bins=15, norm="l1"):
    groups = [[] for _ in range(num_bins)]
    for confidence, right in zip(confidences, correct):
        groups[bin_number(confidence, num_bins)].append((confidence, right))
    return error_of_groups(groups, len(confidences), norm)


def equal_mass_groups(confidences, correct, num_bins):
    pairs = sorted(zip(confidences.tolist(), correct.tolist()), key=lambda pair: pair[0])
    n, groups, start = len(pairs), [], 0
    for m in range(1, num_bins + 1):
        end = max(start, m * n // num_bins)
        while 0 < end < n and pairs[end][0] == pairs[end - 1][0]:
            end += 1
        groups.append(pairs[start:end])
        start = end
    return groups


def adaptive_ece(confidences, correct, num_bins=15, norm="l1"):
    return error_of_groups(equal_mass_groups(confidences, correct, num_bins), len(confidences), norm)


def published_adaptive_ece(confidences, correct, num_bins=15):
    """The published code's: quantile edges with the smallest confidence outside of the first, open, edge."""
    n = len(confidences)
    edges = np.interp(np.linspace(0, n, num_bins + 1), np.arange(n), np.sort(confidences))
    groups = [[(c, r) for c, r in zip(confidences, correct) if low < c <= high] for low, high in pairwise(edges)]
    return error_of_groups(groups, n)


def classwise_ece(probs, targets, num_bins=15, norm="l1", threshold=None):
    errors = []
    for k in range(probs.shape[1]):
        column, came = probs[:, k], targets == k
        if threshold is not None:
            came, column = came[column > threshold], column[column > threshold]
        if len(column):
            errors.append(ece(column, came, num_bins, norm))
    return sum(errors) / len(errors)


def sweep_ece(confidences, correct):
    """Raise the number of equal-mass bins while the accuracies of non-empty bins do not fall."""
    best = 1
    for b in range(1, len(confidences) + 1):
        groups = [group for group in equal_mass_groups(confidences, correct, b) if group]
        accuracies = [sum(r for _, r in group) / len(group) for group in groups]
        if any(later < earlier for earlier, later in pairwise(accuracies)):
            break
        best = b
    return adaptive_ece(confidences, correct, best)


def debiased_l2(confidences, correct, num_bins=15):
    total = 0.0
    for group in equal_mass_groups(confidences, correct, num_bins):
        if len(group) > 1:
            n = len(group)
            accuracy = sum(r for _, r in group) / n
            gap = accuracy - sum(c for c, _ in group) / n
            total += n / len(confidences) * (gap**2 - accuracy * (1 - accuracy) / (n - 1))
    return math.sqrt(max(total, 0.0))


def reflected_gaussian(t, centre, sigma):
    """Sum over the images of ``centre`` mirrored at 0 and 1."""
    images = [2 * j + sign * centre for j in range(-6, 7) for sign in (1, -1)]
    return sum(np.exp(-0.5 * ((t - image) / sigma) ** 2) for image in images) / (sigma * math.sqrt(2 * math.pi))


def smooth_ece(confidences, correct, points=4000):
    t = (np.arange(points) + 0.5) / points

    def at(sigma):
        total = sum(
            (float(r) - float(c)) * reflected_gaussian(t, float(c), sigma) for c, r in zip(confidences, correct)
        )
        return np.abs(total).mean() / len(confidences)

    low, high = 1e-4, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle) > middle else (low, middle)
    return at(low)


def soft_binned_ece(logits, targets, num_bins=15, temperature=0.01, power=2.0):
    confidences, correct = top_label(softmax(logits), targets)
    n = len(targets)
    mass, right, sure = np.zeros(num_bins), np.zeros(num_bins), np.zeros(num_bins)
    for c, r in zip(confidences, correct):
        scores = [math.exp(-((c - (m + 0.5) / num_bins) ** 2) / temperature) for m in range(num_bins)]
        for m in range(num_bins):
            u = scores[m] / sum(scores)
            mass[m] += u
            right[m] += u * r
            sure[m] += u * c
    total = 0.0
    for m in range(num_bins):
        gap = right[m] / max(mass[m], 1e-5) - sure[m] / max(mass[m], 1e-5)
        total += mass[m] / n * abs(gap) ** power
    return total ** (1 / power)


def soft_avuc(logits, targets, kappa=0.5, temperature=0.1):
    probs = softmax(logits)
    classes = probs.shape[1]
    au = ac = iu = ic = 0.0
    for row, target in zip(probs, targets):
        mixed = [(1 - 1e-5) * p + 1e-5 / classes for p in row]
        entropy = -sum(p * math.log(p) for p in mixed)
        e = min(max(entropy / math.log(classes), 1e-6), 1 - 1e-6)
        x = (math.log(e / (1 - e)) - math.log(kappa / (1 - kappa))) / temperature
        q = 1 / (1 + math.exp(-x)) if x > -700 else 0.0
        if row.argmax() == target:
            au += q * math.tanh(entropy)
            ac += (1 - q) * (1 - math.tanh(entropy))
        else:
            iu += q * math.tanh(entropy)
            ic += (1 - q) * (1 - math.tanh(entropy))
    return math.log(1 + (au + ic) / max(ac + iu, 1e-5))


def pairwise_dece(logits, targets, num_bins=15, tau_a=100.0, tau_b=0.01):
    """DECE straight from its definition: bin by bin, with the rank as a sum over the other classes."""
    probs = softmax(logits)
    n, classes = probs.shape
    accuracies, confidences = [], []
    for row, target in zip(probs, targets):
        rank = 1 + sum(1 / (1 + math.exp(-tau_a * (row[j] - row[target]))) for j in range(classes) if j != target)
        accuracies.append(max(0.0, 2 - rank))
        confidences.append(row.max())
    cuts = np.cumsum([m / num_bins for m in range(num_bins)])
    total, members = 0.0, []
    for c in confidences:
        z = np.array([(c * (m + 1) - cuts[m]) / tau_b for m in range(num_bins)])
        z = np.exp(z - z.max())
        members.append(z / z.sum() + 1e-6)
    for m in range(num_bins):
        mass = sum(o[m] for o in members)
        accuracy = sum(o[m] * a for o, a in zip(members, accuracies)) / mass
        confidence = sum(o[m] * c for o, c in zip(members, confidences)) / mass
        total += mass / n * abs(accuracy - confidence)
    return total
