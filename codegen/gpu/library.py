"""Libraries whose code runs on a GPU. Free of TVM, as `library.py` is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loopwright.codegen.devices.code import GpuCode
from loopwright.codegen.devices.device import DeviceProgram, Memory
from loopwright.codegen.library import calls, foreign
from loopwright.codegen.library.arrays import Array
from loopwright.codegen.library.calls import Slot
from loopwright.codegen.library.library import Library, Sources
from loopwright.codegen.library.signature import Origin, Parameter, Signature
from loopwright.codegen.library.torch_tensors import given_back
from loopwright.dsl.errors import LibraryError, ShapeError, TargetError


class GpuLibrary(Library):
    """A compiled computation on a GPU: called, bound and exported as any `Library`.

    Arguments may be arrays of torch or CuPy on the GPU: whatever speaks DLPack and says that it is
    there. These are used where they are, on the current stream of their package, and results are
    of the same kind. NumPy arrays are copied to the GPU, and the results back. Arrays of the GPU
    that are not dense or not aligned to 16 bytes are refused, not copied.
    """

    def __init__(
        self,
        signature: Signature,
        code: GpuCode,
        program: DeviceProgram | None,
        origin: Origin,
        sources: Sources | None = None,
        bound: Mapping[str, Memory] | None = None,
    ) -> None:
        """Use `load_code` or `build`. `program` is None where the code cannot run here; `bound`
        holds memory of the device."""
        super().__init__(signature, None, origin, sources, bound)
        self.code = code
        self._program = program

    @property
    def _running(self) -> DeviceProgram:
        if self._program is None:
            raise TargetError(
                f"{self.signature.name} was built for {self.origin.target}, which this machine "
                "cannot run; export it, or build it on a machine with such a GPU"
            )
        return self._program

    # ---- calling ----

    def __call__(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Computes; see `Library.__call__`. With arrays of the GPU it returns before the GPU is
        done, as torch and CuPy do."""
        inputs, out = calls.told_apart(inputs, named, out, self._names, self._shown)
        package = foreign.package_of(
            (*inputs, *(out if isinstance(out, (tuple, list)) else [out]))
        )
        if package is not None and self.code.language == "cuda":
            return self._call_on_device(package, inputs, out)
        program = self._running
        call = self._prepared_call(program, inputs, out, fill=False)
        call()
        results = call.outputs  # which copies them here, also into `out`
        return given_back(results, inputs) if out is None else out

    def _call_on_device(self, package: foreign.Package, inputs: Sequence[Any], out: Any) -> Any:
        program = self._running.on(package.device)
        if self._bound and program is not self._running:
            raise ShapeError("the inputs that are bound lie on another GPU than these arrays")
        stream = package.stream()
        read = {}
        for slot, value in zip(self._inputs, inputs):
            read[slot.name] = self._taken(program, slot.parameter, value, stream)
        if not all(map(foreign.on_gpu, inputs)):
            program.finish()  # a copy from the host, which the stream does not wait for
        if out is None:
            wanted = [package.empty(p) for p in self.signature.outputs]
        else:
            wanted = list(out) if isinstance(out, (tuple, list)) else [out]
            calls.check_count(wanted, self._outputs)
        written = {}
        for parameter, value in zip(self.signature.outputs, wanted):
            written[parameter.name] = foreign.taken(value, parameter, stream)
        foreign.check_apart(written.values(), read.values())
        self._start(program, {n: m.address for n, m in (read | written).items()}, stream)
        if out is not None:
            return out
        return wanted[0] if len(wanted) == 1 else tuple(wanted)

    def _taken(
        self, program: DeviceProgram, parameter: Parameter, value: Any, stream: int
    ) -> foreign.Taken:
        """An input that may be anywhere, as memory of the device."""
        if foreign.on_gpu(value):
            return foreign.taken(value, parameter, stream)
        memory = self._uploaded(program, Slot.of(parameter), value)
        return foreign.Taken(memory.address, parameter.nbytes, memory)

    def _uploaded(self, program: DeviceProgram, slot: Slot, value: Any) -> Memory:
        value = foreign.host_copy(value) if foreign.on_gpu(value) else value
        memory = program.allocate(slot.nbytes)
        program.write(memory, slot.read(value)[0])
        return memory

    def _start(
        self, program: DeviceProgram, memory: Mapping[str, Any], stream: int | None = None
    ) -> None:
        """Runs `main`, after `prepare` where the constants have not been laid out yet."""
        held = self._bound | dict(memory)
        if not self._is_ready:
            held |= self._prepared_on(program, held, stream)
        program.run("main", [held[p.name] for p in self.signature.main_parameters], stream)

    def _prepared_on(
        self, program: DeviceProgram, held: Mapping[str, Any], stream: int | None = None
    ) -> dict[str, Memory]:
        made = {p.name: program.allocate(p.nbytes) for p in self.signature.prepared}
        everything = {**held, **made}
        arguments = [everything[p.name] for p in self.signature.prepare_parameters]
        program.run("prepare", arguments, stream)
        return made

    def prepare_call(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """The same call, with its arrays on the GPU, made ready to be repeated and timed: a
        `GpuCall`. What `out` holds is copied there too."""
        inputs, out = calls.told_apart(inputs, named, out, self._names, self._shown)
        return self._prepared_call(self._running, inputs, out, fill=True)

    def _prepared_call(
        self, program: DeviceProgram, inputs: Sequence[Any], out: Any, fill: bool
    ) -> GpuCall:
        wanted = [array for array, _, _ in calls.take_outputs(out, self._outputs)]
        held = dict(self._bound)
        for slot, value in zip(self._inputs, inputs):
            held[slot.name] = self._uploaded(program, slot, value)
        results = [program.allocate(p.nbytes) for p in self.signature.outputs]
        if fill and out is not None:
            for memory, array in zip(results, wanted):
                program.write(memory, array)
        held.update(zip((p.name for p in self.signature.outputs), results))
        if not self._is_ready:
            held |= self._prepared_on(program, held)
        arguments = [held[p.name] for p in self.signature.main_parameters]
        return GpuCall(program, arguments, results, tuple(wanted))

    # ---- weights ----

    def _kept(self, slot: Slot, value: Any) -> Memory:
        return self._uploaded(self._running, slot, value)

    def _laid_out(self, bound: Mapping[str, Any]) -> dict[str, Memory]:
        return self._prepared_on(self._running, bound)

    def _with(self, bound: Mapping[str, Any]) -> Library:
        program = self._running
        program.finish()  # other streams may read what was written
        return GpuLibrary(self.signature, self.code, program, self.origin, self._sources, bound)

    # ---- the rest ----

    @property
    def threads(self) -> int:
        """Threads of the processor that a call uses: the caller's."""
        return 1

    @threads.setter
    def threads(self, count: int) -> None:
        raise LibraryError("the threads of a GPU program are part of its config")

    def __reduce__(self) -> Any:
        """Signature and code. Raises `LibraryError` where arrays lie on a GPU, or the code is in a
        file that was loaded."""
        if self._bound or not self.code.image:
            raise LibraryError(
                f"{self.signature.name} holds arrays on a GPU, or was loaded from a file: send "
                "the path of its export instead, load that there, and bind there"
            )
        return load_code, (self.signature, self.code.to_bytes(), self.origin)

    def _exported(self, path: Path) -> Path:
        """The kernels are in NAME.so, with a launcher that needs the GPU's driver alone. For CUDA;
        OpenCL is kept as source."""
        from loopwright.codegen.gpu.export import export

        if self._bound:
            raise LibraryError(
                "what is bound lies on the GPU, and an export has no place for it: export the "
                f"library that bind was called on, and prepare {', '.join(self._bound)} there"
            )
        return export(self.signature, self.code, self.origin, path)


class GpuCall:
    """A call whose arguments are on the GPU: `call()` computes, `repeat` measures."""

    def __init__(
        self,
        program: DeviceProgram,
        arguments: Sequence[Memory],
        results: Sequence[Memory],
        wanted: tuple[Array, ...],
    ) -> None:
        self._program, self._arguments = program, arguments
        self._results, self._wanted = results, wanted

    def __call__(self) -> None:
        """Starts it once."""
        self._program.run("main", self._arguments)

    @property
    def outputs(self) -> tuple[Array, ...]:
        """The results, copied from the GPU now."""
        for memory, array in zip(self._results, self._wanted):
            self._program.read(memory, array)
        return self._wanted

    def repeat(self, times: int) -> tuple[float, float]:
        """Computes `times` times; the seconds that the GPU took for all of them, twice."""
        seconds = self._program.repeat("main", self._arguments, times)
        return seconds, seconds

    def flush(self) -> None:
        """Makes the GPU's caches forget what they hold."""
        self._program.flush()


def load_code(signature: Signature, blob: bytes, origin: Origin | None = None) -> GpuLibrary:
    """The library of a blob of `GpuCode.to_bytes`, on this machine. Raises as `load_program`."""
    code = GpuCode.from_bytes(blob)
    return GpuLibrary(signature, code, load_program(code), origin or Origin())


def load_program(code: GpuCode) -> DeviceProgram:
    """The code, on this machine's first device for its language.

    Raises `TargetError` where there is no such device, driver or package, `BuildError` where the
    driver cannot compile the code, `LibraryError` where it is for another device.
    """
    if code.language == "opencl":
        from loopwright.codegen.devices.opencl import OpenClProgram

        return OpenClProgram(code)
    if code.language == "cuda":
        from loopwright.codegen.devices.cuda import CudaProgram

        return CudaProgram(code)
    raise LibraryError(f"there is no driver for {code.language!r}")
