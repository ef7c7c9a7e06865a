"""Triton's interpreter, without work that it repeats and that takes most of the time of tests that run kernels in it.

Kernels and their results are the same. The functions replaced are not public and those of one version; other versions
stay as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

VERSION = "3.7"


def hasten() -> None:
    """Changes the interpreter of this version for the rest of the process."""
    import triton
    from triton.runtime import interpreter

    if triton.__version__.rpartition(".")[0] != VERSION:
        return
    _patch_language_once_per_launch(interpreter)
    _look_for_builtins_once(interpreter)
    _keep_types(interpreter)
    _keep_shapes(interpreter.tl.core)
    _check_no_overflow_for_nobody(interpreter.TritonSemantic)
    _broadcast_what_differs(interpreter.TritonSemantic)


def _patch_language_once_per_launch(interpreter: Any) -> None:
    """A launch replaces functions of Triton's language, and every call of a device function replaces them again.

    What is replaced depends on the imports of the function's module, so once for each module is enough. The end of the
    launch undoes it.
    """
    patch: Callable[[Any], Any] = interpreter._patch_lang
    launch: Callable[..., None] = interpreter.GridExecutor.__call__
    patched: set[str] = set()

    def patch_once(function: Any) -> Any:
        if function.__module__ in patched:
            return None  # a return value that no call of a device function uses
        patched.add(function.__module__)
        return patch(function)

    def launch_afresh(executor: Any, *args: Any, **kwargs: Any) -> None:
        patched.clear()
        try:
            launch(executor, *args, **kwargs)
        finally:
            patched.clear()

    interpreter._patch_lang = patch_once
    interpreter.GridExecutor.__call__ = launch_afresh


def _look_for_builtins_once(interpreter: Any) -> None:
    """Each launch checks some hundred names of modules and classes for functions to replace; here only the first."""
    names: dict[Any, list[str]] = {}
    is_builtin = interpreter.tl.core.is_builtin

    def patch_builtins(owner: Any, builder: Any, *scope: Any) -> None:
        if owner not in names:
            names[owner] = [name for name, member in inspect.getmembers(owner) if is_builtin(member)]
        for name in names[owner]:
            member = getattr(owner, name)
            if is_builtin(member):  # a function that is not yet replaced
                interpreter._patch_attr(owner, name, member, builder, *scope)

    interpreter._patch_builtin = patch_builtins


def _keep_types(interpreter: Any) -> None:
    """NumPy's type of a tensor is looked up in a table that is rebuilt for each operation; here it is cached."""
    look_up: Callable[[Any], Any] = interpreter._get_np_dtype
    known: dict[str, Any] = {}

    def kept(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in known:
            known[name] = look_up(dtype)
        return known[name]

    interpreter._get_np_dtype = kept


def _keep_shapes(core: Any) -> None:
    """Caches what each result of an operation gets from its shape: its type's name, its dimensions as constants."""
    make_type: Callable[..., None] = core.block_type.__init__
    make_tensor: Callable[..., None] = core.tensor.__init__
    types: dict[tuple[Any, ...], dict[str, Any]] = {}
    of_scalars: list[tuple[Any, Any]] = []

    def kept_type(made: Any, element_ty: Any, shape: Any) -> None:
        key = (element_ty.name, *shape)
        if key not in types:
            make_type(made, element_ty, shape)
            types[key] = {**vars(made), "of_tensors": []}
        vars(made).update(types[key])

    def tensor_of_kept_shape(made: Any, handle: Any, type: Any) -> None:
        kept = type.of_tensors if type.is_block() else of_scalars
        if kept:
            made.handle, made.type, made.dtype = handle, type, type.scalar
            ((made.shape, made.numel),) = kept
        else:
            make_tensor(made, handle, type)
            kept.append((made.shape, made.numel))

    core.block_type.__init__ = kept_type
    core.tensor.__init__ = tensor_of_kept_shape


def _check_no_overflow_for_nobody(semantic: Any) -> None:
    """Each sum and product is computed again in 64 bits, for an assertion that only debugging keeps; here only then."""
    check: Callable[..., None] = semantic.binary_op_sanitize_overflow_impl

    def check_to_debug(owner: Any, *operation: Any) -> None:
        if owner.builder.options.debug:
            check(owner, *operation)

    semantic.binary_op_sanitize_overflow_impl = check_to_debug


def _broadcast_what_differs(semantic: Any) -> None:
    """Two tensors of one shape are broadcast for nothing, after a slow comparison of shapes; here they are not."""
    broadcast: Callable[..., Any] = semantic.broadcast_impl_value

    def broadcast_if_need_be(owner: Any, lhs: Any, rhs: Any) -> Any:
        if lhs.type.is_block() and rhs.type.is_block() and lhs.type.shape.values == rhs.type.shape.values:
            return lhs, rhs
        return broadcast(owner, lhs, rhs)

    semantic.broadcast_impl_value = broadcast_if_need_be
