"""CIFAR-100 in its binary edition, from the archive or extracted, with its 20 superclasses."""

from pathlib import Path

from metacal.lab.data.dataset import Dataset
from metacal.lab.data.files import damaged, first_found, missing
from metacal.lab.data.sources.cifar_binary import MEAN, STD, as_examples, read_files, read_names, read_records

SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
CLASSES = tuple(sorted(name for names in SUPERCLASSES.values() for name in names.split()))
COARSE = tuple(
    next(number for number, names in enumerate(SUPERCLASSES.values()) if name in names.split()) for name in CLASSES
)
PATTERNS = ("cifar-100-binary", "cifar-100-binary.tar.gz", "cifar-100-binary*.tar.gz")
TRAIN, TEST = "train.bin", "test.bin"
FINE_NAMES, COARSE_NAMES = "fine_label_names.txt", "coarse_label_names.txt"


def find(folder: Path) -> tuple[Path, ...]:
    """The folder or archive that `load` reads: extracted before packed, complete before any other edition."""
    own = (folder / TRAIN).is_file() and (folder / FINE_NAMES).is_file()
    found = folder if own else first_found(folder, PATTERNS)
    if found is None:
        raise missing("cifar100", folder, "the folder cifar-100-binary or cifar-100-binary*.tar.gz")
    return (found,)


def load(folder: Path) -> Dataset:
    """50,000 training and 10,000 test images of 100 classes; training pads, crops and flips."""
    (path,) = find(folder)
    files = read_files(path, (TRAIN, TEST, FINE_NAMES, COARSE_NAMES))
    examples = {}
    for name in (TRAIN, TEST):
        labels, images = read_records(path, name, files[name], 2)
        examples[name] = as_examples(path, name, images, labels[:, 1], len(CLASSES))
        wrong = [(int(c), int(f)) for c, f in labels if COARSE[f] != c]
        if wrong:
            raise damaged(path, f"{name} has superclass {wrong[0][0]} for class {wrong[0][1]}")
    return Dataset(
        "cifar100",
        "image",
        examples[TRAIN],
        examples[TEST],
        read_names(files.get(FINE_NAMES), CLASSES),
        superclasses=COARSE,
        superclass_names=read_names(files.get(COARSE_NAMES), tuple(SUPERCLASSES)),
        mean=MEAN,
        std=STD,
        augment=True,
        files=(str(path),),
    )
