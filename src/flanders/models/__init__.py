"""The models that clients train, as PyTorch modules.

The simulator trains many clients at once with `torch.func.functional_call` and `torch.func.vmap`. All models of
this package support that, also the one with batch normalisation.
"""

from flanders.extras import needing

with needing("sim"):
    import torch  # noqa: F401

from flanders.models.convolutional import Cnn6, SmallCnn
from flanders.models.dense import Logistic, Mlp2, Mlp4
from flanders.models.mobilenet import BatchNorm2d, MobileNet, MobileNetReference, SentBatchNorm2d
from flanders.models.model_spec import ModelSpec
from flanders.models.own import OwnModel, as_model
from flanders.models.parameters import Layout, tensor_sizes
from flanders.models.recurrent import Gru
from flanders.registry import Registry

MODELS: Registry[ModelSpec] = Registry(
    "model",
    {
        "mlp2": Mlp2,
        "mlp4": Mlp4,
        "cnn6": Cnn6,
        "mobilenet": MobileNet,
        "mobilenet-reference": MobileNetReference,
        "logistic": Logistic,
        "small-cnn": SmallCnn,
        "gru": Gru,
    },
)

__all__ = [
    "MODELS",
    "BatchNorm2d",
    "Cnn6",
    "Gru",
    "Layout",
    "Logistic",
    "Mlp2",
    "Mlp4",
    "MobileNet",
    "MobileNetReference",
    "ModelSpec",
    "OwnModel",
    "SentBatchNorm2d",
    "SmallCnn",
    "as_model",
    "tensor_sizes",
]
