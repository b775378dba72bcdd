from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LRSUQ: _ClassVar[Kind]
    DG: _ClassVar[Kind]
    DG_Q12: _ClassVar[Kind]
LRSUQ: Kind
DG: Kind
DG_Q12: Kind

class Release(_message.Message):
    __slots__ = ("version", "run", "round", "partition", "k", "noise_stddev", "kind", "block_size", "scale", "model_class", "payload", "digest", "nonce")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    NOISE_STDDEV_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MODEL_CLASS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    run: int
    round: int
    partition: int
    k: int
    noise_stddev: float
    kind: Kind
    block_size: int
    scale: int
    model_class: int
    payload: bytes
    digest: int
    nonce: bytes
    def __init__(self, version: _Optional[int] = ..., run: _Optional[int] = ..., round: _Optional[int] = ..., partition: _Optional[int] = ..., k: _Optional[int] = ..., noise_stddev: _Optional[float] = ..., kind: _Optional[_Union[Kind, str]] = ..., block_size: _Optional[int] = ..., scale: _Optional[int] = ..., model_class: _Optional[int] = ..., payload: _Optional[bytes] = ..., digest: _Optional[int] = ..., nonce: _Optional[bytes] = ...) -> None: ...
