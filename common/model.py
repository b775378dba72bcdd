"""Personal models as functions of one flat parameter vector θ (d_theta,).

A model is any `torch.nn.Module` whose records do not influence each other. The registry maps the setting `model` to
a builder; the paper's model has d_theta = 85,822 (MNIST) and 121,182 (CIFAR-10).
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn

from common.model_probe import probe
from common.randomness import Purpose, public_generator

# Layers that mix the records of a batch, or that draw from a hidden generator: no per-record gradient exists.
_REFUSED = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.dropout._DropoutNd,
    nn.RNNBase,
    nn.LocalResponseNorm,
)


def lenet(image_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """conv 5×5 (16) – pool – conv 5×5 (32) – pool – fc 120 – fc 84 – fc classes, ReLU, biases, no padding."""
    channels, height, width = image_shape
    side_h, side_w = ((height - 4) // 2 - 4) // 2, ((width - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * side_h * side_w, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, num_classes),
    )


MODELS: dict[str, Callable[[tuple[int, int, int], int], nn.Module]] = {"lenet": lenet}


def check_per_record(model: nn.Module) -> None:
    """Refuse a model without per-record gradients.

    Raises:
        ValueError: naming the first offending module, or a model without parameters.
    """
    for name, module in model.named_modules():
        if isinstance(module, _REFUSED) and getattr(module, "p", 1.0) != 0:  # Dropout(p=0) does nothing
            raise ValueError(
                f"model must consist of layers that treat records independently and deterministically. "
                f"Received {type(module).__name__} at {name or 'the top level'!r} "
                f"(for normalisation, nn.GroupNorm works)."
            )
    if any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in model.parameters()):
        raise ValueError("model must have initialised parameters. Received a lazy module.")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("model must have parameters that can be trained (requires_grad). Received none.")


class FlatModel:
    """A module whose trainable parameters are views of one flat vector θ.

    Parameters that don't require gradients when the module is given are frozen: they keep their values, and are no part of
    θ. Parameters that are shared appear once.

    Raises:
        ValueError: the module has no per-record gradients (see `check_per_record`).
    """

    def __init__(self, module: nn.Module, device: str = "cpu") -> None:
        check_per_record(module)
        trainable = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        self.module = module.to(device).requires_grad_(False)
        named = dict(module.named_parameters())
        self.trainable = {name: named[name] for name in trainable}
        self.dim = sum(parameter.numel() for parameter in self.trainable.values())
        self.flat = torch.empty(self.dim, device=device)
        for parameter, view in self._views():
            view.copy_(parameter)
            parameter.data = view
        self.device = torch.device(device)

    def _views(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        offset = 0
        for parameter in self.trainable.values():
            yield parameter, self.flat[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()

    def offsets(self) -> dict[str, tuple[int, torch.Size]]:
        """Where each trainable parameter lives in θ: name → (offset, shape)."""
        result, offset = {}, 0
        for name, parameter in self.trainable.items():
            result[name] = (offset, parameter.shape)
            offset += parameter.numel()
        return result

    def state_dict(self, theta: torch.Tensor) -> dict[str, torch.Tensor]:
        """The model at θ (d_theta,), as the module's `load_state_dict` wants it: trained, frozen and shared parameters, and
        buffers."""
        self.load(theta)
        return {name: value.clone() for name, value in self.module.state_dict().items()}

    def load(self, theta: torch.Tensor) -> None:
        """Set all trainable parameters. `theta`: (d_theta,)."""
        self.flat.copy_(theta)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Logits (n, classes) of `inputs` (n, channels, height, width)."""
        logits: torch.Tensor = self.module(inputs)
        return logits


def _xavier(weight: torch.Tensor) -> None:
    nn.init.xavier_uniform_(weight)


def _he(weight: torch.Tensor) -> None:
    nn.init.kaiming_uniform_(weight, nonlinearity="relu")


# For weights; biases begin at zero.
INITIALISERS: dict[str, Callable[[torch.Tensor], None]] = {"xavier": _xavier, "he": _he}


def initialise(module: nn.Module, init: str) -> None:
    """Initial parameters of a module that has PyTorch's: as they are ("default"), or by a key of `INITIALISERS`."""
    if init == "default":
        return
    for parameter in module.parameters():
        if parameter.dim() > 1:
            INITIALISERS[init](parameter)
        else:
            nn.init.zeros_(parameter)


def build_reference(
    name: str,
    image_shape: tuple[int, int, int],
    num_classes: int,
    *,
    seed: int,
    init: str = "default",
    scale: float = 1.0,
    device: str = "cpu",
) -> tuple[FlatModel, torch.Tensor]:
    """The model and θ_ref: an initialisation from the public seed, times `scale`.

    Args:
        init: "default" (PyTorch's), or a key of `INITIALISERS`.

    Returns:
        The flat model and θ_ref (d_theta,) float32.

    Raises:
        ValueError: a model without per-record gradients, by the name of the module that is to blame.
    """
    # PyTorch's initialisers take no generator here; the fork keeps the global state out of it.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(public_generator(seed, Purpose.REFERENCE).integers(2**63)))
        module = MODELS[name](image_shape, num_classes)
        initialise(module, init)
    model = FlatModel(module, device)
    probe(model.module, image_shape, model.device)
    return model, model.flat * scale
