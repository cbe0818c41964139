"""What every export of torch makes anew, two thirds of its time, kept between those of tests."""

import contextlib
import functools
import sys


def keep():
    """Keep it, as far as modules are loaded that make it.

    These are torch's list of its composite operators, which an export makes sixty times, the parts
    of these, and the ten kernels of each that are replaced while a program is taken apart.
    """
    for module, name, wrapper in (
        ("loopwright.graph.importers.torch.to_onnx", "translations", functools.cache),
        ("torch._export.utils", "_check_valid_to_preserve", functools.cache),
        ("torch._export.utils", "_materialize_cpp_cia_ops", functools.cache),
        ("torch.export.decomp_utils", "_get_decomp_for_cia", _same_parts),
        ("torch.export.exported_program", "_override_composite_implicit_decomp", _at_once),
    ):
        owner = sys.modules.get(module)
        if hasattr(owner, name):  # torch's own names may go
            replace(owner, name, wrapper)


def replace(owner, name, wrapper):
    """Wrap a function where it is, once."""
    function = getattr(owner, name)
    if not hasattr(function, "kept"):
        kept = wrapper(function)
        kept.kept = True
        setattr(owner, name, kept)


def _same_parts(parts):
    """`_get_decomp_for_cia`, which makes a function of an operator without a kernel of Python."""
    from torch._C import DispatchKey

    made = functools.cache(parts)

    def same(operator):
        own = DispatchKey.CompositeImplicitAutograd in operator.py_kernels
        return parts(operator) if own else made(operator)

    return same


def _at_once(override):
    """`_override_composite_implicit_decomp`, which keeps the kernels that it has put together for
    an operator and the function that stands for it, and the rule for fake tensors."""
    from torch._subclasses.fake_impls import op_implementations_dict as rules

    known = {}  # kernels before, kernels meanwhile, rule

    @contextlib.contextmanager
    def overridden(functions):
        new, own = {}, {}
        for operator, function in functions.items():
            before = known.get((operator, function), (None,))[0]
            if before != operator.py_kernels or operator in rules:
                new[operator] = function
                own[operator] = operator.py_kernels.copy(), operator in rules
        with override(new):
            for operator, function in new.items():
                before, ruled = own[operator]
                if not ruled:
                    kept = before, operator.py_kernels.copy(), rules[operator]
                    known[operator, function] = kept
            old = functions.keys() - new.keys()
            for operator in old:
                _, kernels, rules[operator] = known[operator, functions[operator]]
                _set(operator, kernels)
            try:
                yield
            finally:
                for operator in old:
                    _set(operator, known[operator, functions[operator]][0])
                    rules.pop(operator, None)

    return overridden


def _set(operator, kernels):
    operator.py_kernels.clear()
    operator.py_kernels.update(kernels)
    operator._dispatch_cache.clear()
