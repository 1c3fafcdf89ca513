"""Calls of PyTorch's linear algebra, which record_calls.py records.

Signs of singular vectors and eigenvectors are arbitrary, so these are compared in shape alone; tests/linear_algebra
checks what defines them. So are parts of results of singular matrices that PyTorch does not define.
"""

import torch

F = (torch.float32, torch.float64)
LOOSE = {"loose": True}


def positive(rand, *sizes, dtype):
    x = rand(*sizes, dtype=torch.float64)
    return (x @ x.mT + torch.eye(sizes[-1], dtype=torch.float64)).to(dtype)


def regular(rand, *sizes, dtype):
    return (rand(*sizes, dtype=torch.float64) + 3 * torch.eye(sizes[-1], dtype=torch.float64)).to(dtype)


def calls(add, rand, t, transposed, sliced):
    shapes = ((1, 1), (4, 4), (2, 3, 3), (2, 2, 6, 6), (0, 3, 3), (0, 0), (2, 0, 0), (26, 26))
    for dtype in F:
        for sizes in shapes:
            spd, x = positive(rand, *sizes, dtype=dtype), regular(rand, *sizes, dtype=dtype)
            n, batch = sizes[-1], sizes[:-2]
            for a in (spd, transposed(spd), sliced(spd)) if n == 3 else (spd,):
                add("linalg_cholesky", a, options=LOOSE)
                add("linalg_cholesky", a, upper=True, options=LOOSE)
                add("linalg_cholesky_ex", a, options=LOOSE)
            factor = torch.linalg.cholesky(spd)
            # PyTorch gives the other triangle of a factor a gradient, too.
            no_grad = {"loose": True, "no_grad": True}
            add("cholesky_inverse", factor, options=no_grad)
            add("cholesky_inverse", factor.mT, True, options=no_grad)
            add("cholesky_solve", rand(*batch, n, 2, dtype=dtype), factor, options=no_grad)
            add("cholesky_solve", rand(*batch, n, 2, dtype=dtype), factor.mT, True, options=no_grad)
            for a in (x, transposed(x), sliced(x)) if n == 3 else (x,):
                add("linalg_inv", a, options=LOOSE)
                add("linalg_inv_ex", a, options=LOOSE)
                add("inverse", a, options=LOOSE)
                add("linalg_det", a, options=LOOSE)
                add("det", a, options=LOOSE)
                add("linalg_slogdet", a, options=LOOSE)
                add("slogdet", a, options=LOOSE)
                add("logdet", spd, options=LOOSE)
                add("linalg_lu_factor", a, options=LOOSE)
                add("linalg_lu_factor_ex", a, options=LOOSE)
                add("linalg_lu", a, options=LOOSE)
                add("linalg_eigvalsh", a.clone(), options=LOOSE)
                add("linalg_eigvalsh", a.clone(), "U", options=LOOSE)
                add("linalg_eigh", a, options={"loose": True, "unchecked": (1,), "no_grad": True})
                add("linalg_matrix_exp", a, options=LOOSE)
                add("matrix_exp", a / 4, options=LOOSE)
                add("matrix_power", a, -2, options=LOOSE)
                add("linalg_matrix_rank", a, overload="atol_rtol_float")
                if a.numel():
                    for p in (None, 2, -2, 1, -1, float("inf"), float("-inf")):
                        add("linalg_cond", a, p, options=LOOSE)
                    for p in ("fro", "nuc"):
                        add("linalg_cond", a, p, overload="p_str", options=LOOSE)
            b = rand(*batch, n, 2, dtype=dtype)
            for left in (True, False):
                right = b if left else b.mT.contiguous()
                add("linalg_solve", x, right, left=left, options=LOOSE)
                add("linalg_solve_ex", x, right, left=left, options=LOOSE)
                for upper in (True, False):
                    for unit in (True, False):
                        scaled = x / 8 if unit else x
                        add("linalg_solve_triangular", scaled, right, upper=upper, left=left, unitriangular=unit, options=LOOSE)
            lu, pivots = torch.linalg.lu_factor(x)
            add("linalg_lu_solve", lu, pivots, b, options=LOOSE)
            add("linalg_lu_solve", lu, pivots, b, adjoint=True, options=LOOSE)
            add("linalg_lu_solve", lu, pivots, b.mT.contiguous(), left=False, options=LOOSE)
            add("lu_solve", b, lu, pivots, options=LOOSE)
            add("lu_unpack", lu, pivots, options={"no_grad": True})
            add("triangular_solve", b, x, options={"loose": True, "no_grad": True})
            add("triangular_solve", b, x, False, True, options={"loose": True, "no_grad": True})
        # Broadcasting, and vectors on the right.
        x = regular(rand, 3, 3, dtype=dtype)
        add("linalg_solve", x, rand(3, dtype=dtype), options=LOOSE)
        add("linalg_solve", regular(rand, 2, 3, 3, dtype=dtype), rand(2, 3, dtype=dtype), options=LOOSE)
        add("linalg_solve", regular(rand, 2, 1, 3, 3, dtype=dtype), rand(4, 3, 2, dtype=dtype), options=LOOSE)
        add("linalg_solve", x.expand(2, 3, 3), rand(2, 3, 1, dtype=dtype), options=LOOSE)
        add("linalg_solve_triangular", x, rand(2, 3, 2, dtype=dtype), upper=True, options=LOOSE)
        add("cholesky_solve", rand(2, 3, 2, dtype=dtype), torch.linalg.cholesky(positive(rand, 3, 3, dtype=dtype)), options=no_grad)
        for sizes in ((3, 3), (5, 3), (3, 5), (2, 4, 2), (2, 2, 4), (0, 3), (3, 0), (1, 1), (30, 12), (12, 30)):
            x = rand(*sizes, dtype=dtype)
            free = {"loose": True, "unchecked": (0, 2), "no_grad": True}
            add("linalg_qr", x, options=LOOSE)
            add("linalg_qr", x, "complete", options=LOOSE if sizes[-2] <= sizes[-1] else {"loose": True, "unchecked": (0,), "no_grad": True})
            add("linalg_qr", x, "r", options={"loose": True, "no_grad": True})
            add("linalg_svd", x, False, options=free)
            add("linalg_svd", x, True, options=free)
            add("svd", x, options=free)
            add("svd", x, True, False, options={"loose": True, "no_grad": True})
            add("linalg_svdvals", x, options=LOOSE)
            add("linalg_lu", x, options=LOOSE)
            add("linalg_pinv", x, overload="atol_rtol_float", options=LOOSE)
            add("linalg_pinv", x, rtol=0.3, overload="atol_rtol_float", options={"loose": True, "no_grad": True})
            add("linalg_pinv", x, 1e-5, options=LOOSE)
            add("pinverse", x, options=LOOSE)
            add("linalg_matrix_rank", x, overload="atol_rtol_float")
            add("linalg_matrix_rank", x, atol=1.0, overload="atol_rtol_float")
            add("linalg_matrix_rank", x, 0.5)
            if x.numel():
                for order in (2, -2):
                    add("linalg_matrix_norm", x, order, options=LOOSE)
                    add("linalg_matrix_norm", x, order, [-1, -2], True, options=LOOSE)
                add("linalg_matrix_norm", x, "nuc", overload="str_ord", options=LOOSE)
                add("linalg_norm", x, "nuc", overload="ord_str", options=LOOSE) if x.dim() == 2 else None
                b = rand(*sizes[:-1], 2, dtype=dtype)
                for driver in (None, "gels", "gelsd", "gelss"):
                    add("linalg_lstsq", x, b, driver=driver, options={"loose": True, "no_grad": True})
        add("linalg_lstsq", rand(5, 3, dtype=dtype), rand(5, dtype=dtype), options={"loose": True, "no_grad": True})
        batch = rand(2, 4, 3, dtype=dtype)
        add("linalg_pinv", batch, rtol=t([1e-3, 0.5], dtype), overload="atol_rtol_tensor", options={"loose": True, "no_grad": True})
        add("linalg_pinv", batch, atol=t([0.1, 1.0], dtype), overload="atol_rtol_tensor", options={"loose": True, "no_grad": True})
        add("linalg_pinv", batch, t([1e-3, 0.5], dtype), overload="rcond_tensor", options={"loose": True, "no_grad": True})
        add("linalg_matrix_rank", batch, t([0.1, 1.5], dtype), overload="tol_tensor")
        add("linalg_matrix_rank", batch, rtol=t([0.1, 0.9], dtype), overload="atol_rtol_tensor")
        spd = positive(rand, 3, 3, dtype=dtype)
        add("linalg_pinv", spd, hermitian=True, overload="atol_rtol_float", options=LOOSE)
        add("linalg_matrix_rank", spd, hermitian=True, overload="atol_rtol_float")
        add("linalg_norm", spd, 2, options=LOOSE)
        add("linalg_tensorinv", regular(rand, 6, 6, dtype=dtype).reshape(2, 3, 6), 2, options=LOOSE)
        add("linalg_tensorinv", regular(rand, 6, 6, dtype=dtype).reshape(6, 3, 2), 1, options=LOOSE)
        add("linalg_tensorsolve", regular(rand, 6, 6, dtype=dtype).reshape(2, 3, 6), rand(2, 3, dtype=dtype), options=LOOSE)
        add("linalg_tensorsolve", regular(rand, 6, 6, dtype=dtype).reshape(2, 3, 3, 2), rand(2, 3, dtype=dtype), None, options=LOOSE)
        # A matrix of deficient rank, and singular ones.
        thin = rand(5, 2, dtype=dtype) @ rand(2, 4, dtype=dtype)
        add("linalg_pinv", thin, rtol=1e-4, overload="atol_rtol_float", options={"loose": True, "no_grad": True})
        add("linalg_matrix_rank", thin, rtol=1e-4, overload="atol_rtol_float")
        add("linalg_lstsq", thin, rand(5, 1, dtype=dtype), 1e-4, options={"loose": True, "no_grad": True})
        singular = t([[1.0, 2, 0], [2, 4, 0], [0, 0, 1]], dtype)
        add("linalg_det", singular, options={"loose": True, "no_grad": True})
        add("linalg_slogdet", singular, options={"loose": True, "no_grad": True})
        add("linalg_cholesky_ex", singular, options={"unchecked": (0,), "no_grad": True})
        add("linalg_lu_factor_ex", singular, options={"no_grad": True})
        add("linalg_inv_ex", singular, options={"unchecked": (0,), "no_grad": True})
        for op in ("linalg_cholesky", "linalg_inv", "inverse", "linalg_lu_factor"):
            add(op, singular)
        add("linalg_solve", singular, rand(3, 1, dtype=dtype))
        add("linalg_cond", singular, 1, options={"no_grad": True})
    nan = t([[1.0, float("nan")], [float("nan"), 1.0]])
    # PyTorch has no error for the eigenvalues of this matrix, but for others.
    for op in ("linalg_cholesky", "linalg_svdvals", "linalg_pinv"):
        add(op, nan, overload="atol_rtol_float" if op == "linalg_pinv" else "")
    add("linalg_solve", nan, nan, options={"no_grad": True})
    add("linalg_det", nan, options={"no_grad": True})
    square = ("linalg_cholesky", "linalg_inv", "linalg_det", "linalg_slogdet", "linalg_eigh", "linalg_eigvalsh", "matrix_exp")
    for op in (*square, "linalg_svdvals", "linalg_qr", "linalg_lu_factor"):
        # PyTorch's exponential of f16 overflows inside.
        for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.bool)[op == "matrix_exp":]:
            add(op, torch.eye(3).to(dtype), options={"loose": True, "no_grad": True})
        add(op, rand(3))
        if op in square:
            add(op, rand(3, 4))
    add("linalg_solve", rand(3, 3), rand(4, 2))
    add("linalg_solve", rand(3, 3), rand(3, 2).double())
    add("linalg_solve", rand(3, 3), rand(3), left=False)
    add("linalg_eigh", rand(3, 3), "X")
    add("linalg_qr", rand(3, 3), "x")
    add("linalg_lu", rand(3, 3), pivot=False)
    add("linalg_lstsq", rand(3, 2), rand(4, 2))
    add("linalg_matrix_norm", rand(3, 3), 3)
    add("linalg_tensorinv", rand(2, 3, 5), 2)
