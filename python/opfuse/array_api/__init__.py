"""The array API standard, version 2024.12: `x.__array_namespace__()`, or `import opfuse.array_api as xp`.

https://data-apis.org/array-api/2024.12. The functions are opfuse's operators under the standard's names, with its rules
for dtypes: arrays of no dims count like all others, and numbers of Python take the dtype of the array beside them.
The extensions `fft` and `linalg` are there; there are no unsigned integers but `uint8`. `scripts/array_api.sh` runs the
standard's own tests.
"""

import math as _math

from opfuse import bool, complex64, complex128, float32, float64, from_dlpack, int8, int16, int32, int64, uint8
from opfuse.array_api import _creation, _dtypes, _elements, _products, _reductions, _searches, _shapes, fft, linalg
from opfuse.array_api._creation import *  # noqa: F403
from opfuse.array_api._dtypes import *  # noqa: F403
from opfuse.array_api._elements import *  # noqa: F403
from opfuse.array_api._products import *  # noqa: F403
from opfuse.array_api._reductions import *  # noqa: F403
from opfuse.array_api._searches import *  # noqa: F403
from opfuse.array_api._shapes import *  # noqa: F403

__array_api_version__ = "2024.12"

e, pi, inf, nan, newaxis = _math.e, _math.pi, _math.inf, _math.nan, None

__all__ = ["__array_api_version__", "e", "pi", "inf", "nan", "newaxis"]
__all__ += ["bool", "complex64", "complex128", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]
__all__ += ["from_dlpack", "fft", "linalg"]
__all__ += _creation.__all__
__all__ += _dtypes.__all__
__all__ += _elements.__all__
__all__ += _products.__all__
__all__ += _reductions.__all__
__all__ += _searches.__all__
__all__ += _shapes.__all__


def __dir__() -> list[str]:
    return __all__
