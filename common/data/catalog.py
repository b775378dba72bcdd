"""The data sets that exist: shapes, digests of the decoded arrays, public constants. Adding one starts here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArraySpec:
    """One decoded array: file name in the cache (without .npy), shape, SHA-256 of its bytes in C order (uint8)."""

    name: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class DatasetSpec:
    """A data set of labelled images.

    Attributes:
        image_shape: (channels, height, width) as the model sees it.
        mean, stddev: public constants per channel for `input-scaling = standardized`, from the literature.
        arrays: train images and labels, test images and labels; images are stored height x width [x channels]. Empty for
            records that no one but their holders has.
    """

    name: str
    image_shape: tuple[int, int, int]
    num_classes: int
    mean: tuple[float, ...]
    stddev: tuple[float, ...]
    arrays: tuple[ArraySpec, ...]


DATASETS = {
    "mnist": DatasetSpec(
        name="mnist",
        image_shape=(1, 28, 28),
        num_classes=10,
        mean=(0.1307,),
        stddev=(0.3081,),
        arrays=(
            ArraySpec(
                "train_images", (60000, 28, 28), "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757"
            ),
            ArraySpec("train_labels", (60000,), "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13"),
            ArraySpec(
                "test_images", (10000, 28, 28), "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161"
            ),
            ArraySpec("test_labels", (10000,), "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5"),
        ),
    ),
    "cifar10": DatasetSpec(
        name="cifar10",
        image_shape=(3, 32, 32),
        num_classes=10,
        mean=(0.4914, 0.4822, 0.4465),
        stddev=(0.2470, 0.2435, 0.2616),
        arrays=(
            ArraySpec(
                "train_images", (50000, 32, 32, 3), "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a"
            ),
            ArraySpec("train_labels", (50000,), "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253"),
            ArraySpec(
                "test_images", (10000, 32, 32, 3), "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04"
            ),
            ArraySpec("test_labels", (10000,), "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5"),
        ),
    ),
}
