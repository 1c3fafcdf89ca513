# Made by stubs/generate.py. Overloads of operators overlap, and Python takes the first that fits.
# mypy: disable-error-code="overload-overlap, overload-cannot-match, misc"
from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from collections.abc import Callable, Sequence
from typing import Any, overload

from opfuse import autograd as autograd
from opfuse._derivatives import grad as grad
from opfuse._derivatives import hessian as hessian
from opfuse._derivatives import jacfwd as jacfwd
from opfuse._derivatives import jacrev as jacrev
from opfuse._derivatives import jvp as jvp
from opfuse._derivatives import value_and_grad as value_and_grad
from opfuse._derivatives import vjp as vjp
from opfuse._functional import autocast as autocast
from opfuse._functional import enable_grad as enable_grad
from opfuse._functional import fast_numerics as fast_numerics
from opfuse._functional import inference_mode as inference_mode
from opfuse._functional import is_floating_point as is_floating_point
from opfuse._functional import is_tensor as is_tensor
from opfuse._functional import no_grad as no_grad
from opfuse._functional import norm as norm
from opfuse._functional import numel as numel
from opfuse._functional import set_grad_enabled as set_grad_enabled
from opfuse._functional import unique as unique
from opfuse._functional import vmap as vmap
from opfuse.array_api import can_cast as can_cast
from opfuse.array_api import finfo as finfo
from opfuse.array_api import iinfo as iinfo
from opfuse.array_api import isdtype as isdtype
from opfuse.array_api import result_type as result_type
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
    Profile as Profile,
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
    complex64 as complex64,
    complex128 as complex128,
    default_generator as default_generator,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    from_arrow as from_arrow,
    from_dlpack as from_dlpack,
    get_num_threads as get_num_threads,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    is_grad_enabled as is_grad_enabled,
    load as load,
    manual_seed as manual_seed,
    ops as ops,
    profile as profile,
    save as save,
    set_num_threads as set_num_threads,
    tensor as tensor,
    uint8 as uint8,
)

as_tensor = asarray
from_numpy = asarray
half: DType
double: DType
short: DType
long: DType
inf: float
nan: float
pi: float
e: float
newaxis: None

@overload
def compile(function: Callable[..., Any], /, **options: Any) -> Compiled: ...
@overload
def compile(function: None = None, /, **options: Any) -> Callable[[Callable[..., Any]], Compiled]: ...

# Operators: made from their schemas.
