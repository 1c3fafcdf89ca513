# Made by stubs/generate.py. Overloads of operators overlap, and Python takes the first that fits.
# mypy: disable-error-code="overload-overlap, overload-cannot-match, misc"
from builtins import bool as _bool
from collections.abc import Sequence
from typing import overload

from opfuse._functional import autocast as autocast
from opfuse._functional import compile as compile
from opfuse._functional import enable_grad as enable_grad
from opfuse._functional import fast_numerics as fast_numerics
from opfuse._functional import grad as grad
from opfuse._functional import no_grad as no_grad
from opfuse._functional import value_and_grad as value_and_grad
from opfuse._functional import vmap as vmap
from opfuse._opfuse import (
    ArgumentError as ArgumentError,
    Compiled as Compiled,
    Device as Device,
    DType as DType,
    DTypeError as DTypeError,
    Error as Error,
    Explain as Explain,
    ExportedProgram as ExportedProgram,
    FileError as FileError,
    Generator as Generator,
    MissingFileError as MissingFileError,
    OutOfMemoryError as OutOfMemoryError,
    RangeError as RangeError,
    Tensor as Tensor,
    UnsupportedError as UnsupportedError,
    __version__ as __version__,
    _Device,
    _DType,
    _Number,
    asarray as asarray,
    bfloat16 as bfloat16,
    bool as bool,
    bool_ as bool_,
    default_generator as default_generator,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    from_dlpack as from_dlpack,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    is_grad_enabled as is_grad_enabled,
    load as load,
    manual_seed as manual_seed,
    ops as ops,
    save as save,
    tensor as tensor,
    uint8 as uint8,
)

newaxis: None

# Operators: made from their schemas.
