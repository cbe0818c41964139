"""The child process that runs passes: libLLVM by its C API, and no more than Python's own library.

    python -I child.py LIBRARY DESCRIPTOR [-switch…]

Requests come, and answers go, over a socket, as the parent's `process.py` says. A bad pass list
may end this process. It ends itself where its parent has gone.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections import OrderedDict
from multiprocessing.connection import Connection
from typing import Any

_KEPT = 8  # modules that stay parsed
_OBJECT_FILE, _AGGRESSIVE, _PIC, _DEFAULT_MODEL = 1, 3, 2, 0
_RETURN_STATUS = 2
_CONTRACT = 1 << 5  # LLVMFastMathAllowContract
_WEAK = frozenset((5, 6))  # LLVMLinkage: what every module of TVM brings for float16
_P, _U, _S = ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p


class ListError(Exception):
    """An objection of libLLVM to a module or a pass list."""


class Llvm:
    """libLLVM, with the functions that are called here."""

    _FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "LLVMCanValueUseFastMathFlags": (ctypes.c_int, (_P,)),
        "LLVMCloneModule": (_P, (_P,)),
        "LLVMContextCreate": (_P, ()),
        "LLVMCreateMemoryBufferWithMemoryRangeCopy": (_P, (_S, ctypes.c_size_t, _S)),
        "LLVMCreatePassBuilderOptions": (_P, ()),
        "LLVMCreateTargetMachine": (_P, (_P, _S, _S, _S, _U, _U, _U)),
        "LLVMDisposeMemoryBuffer": (None, (_P,)),
        "LLVMDisposeMessage": (None, (_P,)),
        "LLVMDisposeModule": (None, (_P,)),
        "LLVMDisposeTargetMachine": (None, (_P,)),
        "LLVMGetBufferSize": (ctypes.c_size_t, (_P,)),
        "LLVMGetBufferStart": (_P, (_P,)),
        "LLVMGetErrorMessage": (_P, (_P,)),
        "LLVMDisposeErrorMessage": (None, (_P,)),
        "LLVMGetFastMathFlags": (_U, (_P,)),
        "LLVMGetFirstBasicBlock": (_P, (_P,)),
        "LLVMGetFirstFunction": (_P, (_P,)),
        "LLVMGetFirstInstruction": (_P, (_P,)),
        "LLVMGetLinkage": (_U, (_P,)),
        "LLVMGetNextBasicBlock": (_P, (_P,)),
        "LLVMGetNextFunction": (_P, (_P,)),
        "LLVMGetNextInstruction": (_P, (_P,)),
        "LLVMGetTarget": (_S, (_P,)),
        "LLVMGetTargetFromTriple": (ctypes.c_int, (_S, _P, _P)),
        "LLVMParseCommandLineOptions": (None, (ctypes.c_int, _P, _S)),
        "LLVMParseIRInContext": (ctypes.c_int, (_P, _P, _P, _P)),
        "LLVMPrintModuleToString": (_P, (_P,)),
        "LLVMRunPasses": (_P, (_P, _S, _P, _P)),
        "LLVMSetFastMathFlags": (None, (_P, _U)),
        "LLVMTargetMachineEmitToMemoryBuffer": (ctypes.c_int, (_P, _P, _U, _P, _P)),
        "LLVMVerifyModule": (ctypes.c_int, (_P, _U, _P)),
    }

    def __init__(self, path: str, switches: list[str]) -> None:
        self._library = library = ctypes.CDLL(path)
        for name, (result, arguments) in self._FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        for part in ("TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser"):
            getattr(library, f"LLVMInitializeX86{part}")()
        if switches:
            words = [b"passes", *(s.encode() for s in switches)]
            library.LLVMParseCommandLineOptions(
                len(words), (ctypes.c_char_p * len(words))(*words), None
            )
        self._context = library.LLVMContextCreate()
        self._options = library.LLVMCreatePassBuilderOptions()
        self._modules: OrderedDict[tuple[bytes, str], tuple[int, int]] = OrderedDict()

    def version(self) -> list[int]:
        """Major, minor and patch version."""
        found = [ctypes.c_uint() for _ in range(3)]
        self._library.LLVMGetVersion(*map(ctypes.byref, found))
        return [number.value for number in found]

    def run(self, text: bytes, asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The answer to a request, and the bytes that it asked for. Raises `ListError`."""
        library = self._library
        parsed, machine = self._module(text, asked["mcpu"], asked["features"])
        module = library.LLVMCloneModule(parsed)
        try:
            passes = asked["passes"].encode()
            if passes and (error := library.LLVMRunPasses(module, passes, machine, self._options)):
                raise ListError(self._error(error))
            message = _P()
            if library.LLVMVerifyModule(module, _RETURN_STATUS, ctypes.byref(message)):
                said = self._taken(message.value)
                raise ListError(f"LLVM's verifier refuses its result: {said}")
            answer = {"instructions": sum(1 for _ in self._walk(module))}
            if asked["give"] == "object":
                return answer, self._object(module, machine)
            if asked["give"] == "llvm":
                return answer, self._taken(library.LLVMPrintModuleToString(module)).encode()
            return answer, b""
        finally:
            library.LLVMDisposeModule(module)

    def _module(self, text: bytes, mcpu: str, features: str) -> tuple[int, int]:
        """A module of LLVM IR, parsed once, and a machine for it."""
        key = (text, mcpu + features)
        if key not in self._modules:
            self._modules[key] = self._parsed(text, mcpu, features)
            if len(self._modules) > _KEPT:
                _, (module, machine) = self._modules.popitem(last=False)
                self._library.LLVMDisposeModule(module)
                self._library.LLVMDisposeTargetMachine(machine)
        self._modules.move_to_end(key)
        return self._modules[key]

    def _parsed(self, text: bytes, mcpu: str, features: str) -> tuple[int, int]:
        library = self._library
        buffer = library.LLVMCreateMemoryBufferWithMemoryRangeCopy(text, len(text), b"module")
        module, target, message = _P(), _P(), _P()
        # The buffer is the parser's from here on.
        if library.LLVMParseIRInContext(
            self._context, buffer, ctypes.byref(module), ctypes.byref(message)
        ):
            raise ListError(f"LLVM cannot read TVM's IR: {self._taken(message.value)}")
        triple = library.LLVMGetTarget(module)
        if library.LLVMGetTargetFromTriple(triple, ctypes.byref(target), ctypes.byref(message)):
            raise ListError(self._taken(message.value))
        machine = library.LLVMCreateTargetMachine(
            target, triple, mcpu.encode(), features.encode(), _AGGRESSIVE, _PIC, _DEFAULT_MODEL
        )
        self._contract(module)
        return module.value or 0, machine

    def _contract(self, module: Any) -> None:
        """Let products and sums become fused ones, as TVM does when it makes machine code."""
        library = self._library
        for instruction in self._walk(module):
            if library.LLVMCanValueUseFastMathFlags(instruction):
                flags = library.LLVMGetFastMathFlags(instruction)
                library.LLVMSetFastMathFlags(instruction, flags | _CONTRACT)

    def _walk(self, module: Any) -> Any:
        library = self._library
        function = library.LLVMGetFirstFunction(module)
        while function:
            block = 0
            if library.LLVMGetLinkage(function) not in _WEAK:
                block = library.LLVMGetFirstBasicBlock(function)
            while block:
                instruction = library.LLVMGetFirstInstruction(block)
                while instruction:
                    yield instruction
                    instruction = library.LLVMGetNextInstruction(instruction)
                block = library.LLVMGetNextBasicBlock(block)
            function = library.LLVMGetNextFunction(function)

    def _object(self, module: int, machine: int) -> bytes:
        library, message, buffer = self._library, _P(), _P()
        if library.LLVMTargetMachineEmitToMemoryBuffer(
            machine, module, _OBJECT_FILE, ctypes.byref(message), ctypes.byref(buffer)
        ):
            raise ListError(self._taken(message.value))
        size = library.LLVMGetBufferSize(buffer)
        code = ctypes.string_at(library.LLVMGetBufferStart(buffer), size)
        library.LLVMDisposeMemoryBuffer(buffer)
        return code

    def _taken(self, message: Any) -> str:
        """A message of libLLVM's, which is freed."""
        text = ctypes.string_at(message).decode(errors="replace")
        self._library.LLVMDisposeMessage(message)
        return text

    def _error(self, error: Any) -> str:
        message = self._library.LLVMGetErrorMessage(error)
        text = ctypes.string_at(message).decode(errors="replace")
        self._library.LLVMDisposeErrorMessage(message)
        return text


def main() -> None:
    """Answer requests until the parent closes the socket."""
    path, descriptor, *switches = sys.argv[1:]
    llvm = Llvm(path, switches)  # which a switch that asks for help ends
    connection = Connection(int(descriptor))
    try:
        connection.send_bytes(json.dumps({"version": llvm.version()}).encode())
        while True:
            asked, text = json.loads(connection.recv_bytes()), connection.recv_bytes()
            try:
                answer, given = llvm.run(text, asked)
            except ListError as error:
                answer, given = {"error": str(error)}, b""
            connection.send_bytes(json.dumps(answer).encode())
            connection.send_bytes(given)
    except (EOFError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
