"""CUDA source as shared objects for the processor: what the stand-in for the driver runs."""

import hashlib
import re
import subprocess
from pathlib import Path

import tvm

import loopwright.codegen as codegen

HERE = Path(__file__).parent
PTX = Path(codegen.__file__).parent / "gpu/prelude/cuda_ptx.cu"


def fake_driver(folder):
    """A folder with a libcuda.so.1 for LD_LIBRARY_PATH."""
    output = folder / "libcuda.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", HERE / "libcuda.c"]
        + ["-o", output, "-ldl"],
        check=True,
    )
    return folder


def fake_runtime(folder):
    """A folder with a libcudart.so.13 beside the driver, so that TVM's CUDA run-time loads."""
    theirs = Path(tvm.__file__).parent / "lib/libtvm_runtime_cuda.so"
    table = subprocess.run(
        ["nm", "-D", "--undefined-only", theirs], check=True, capture_output=True, text=True
    )
    names = re.findall(r"\b(cuda\w+)@", table.stdout)
    (folder / "cudart.c").write_text("".join(f"int {n}(void) {{ return 1; }}\n" for n in names))
    (folder / "cudart.map").write_text("libcudart.so.13 { *; };\n")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libcudart.so.13", folder / "cudart.c"]
        + [f"-Wl,--version-script={folder / 'cudart.map'}", "-o", folder / "libcudart.so.13"],
        check=True,
    )
    return fake_driver(folder)


def emulated(source, folder):
    """The image of CUDA source, for the stand-in."""
    instructions = PTX.read_text()
    assert instructions in source
    text = source.replace(instructions, '#include "emulation.h"\n')
    dynamic = "extern __shared__ __align__(128) unsigned char lw_shared[];"
    text = text.replace(dynamic, "alignas(128) static unsigned char lw_shared[227 << 10];", 1)
    text = text.replace(dynamic, "")
    text = re.sub(r"__shared__ (alignas\(\d+\)) ", r"\1 static ", text)
    for name, parameters in dict(
        re.findall(r"__launch_bounds__\(\d+\) (\w+)\((.*?)\) \{", text)
    ).items():
        types = [p.rsplit(" ", 1)[0].replace("__restrict__", "") for p in parameters.split(", ")]
        values = ", ".join(f"*({t}*)p[{i}]" for i, t in enumerate(types))
        text += f'\nextern "C" void emulated_{name}(void **p) {{ {name}({values}); }}\n'
    stem = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder / f"{stem}.so"
    if not path.exists():
        (folder / f"{stem}.cpp").write_text(text)
        done = subprocess.run(
            [
                "c++",
                "-std=c++17",
                "-O0",
                "-w",
                "-shared",
                "-fPIC",
                f"-I{HERE}",
                "-fno-strict-aliasing",
            ]
            + [folder / f"{stem}.cpp", "-o", path],
            capture_output=True,
            text=True,
        )
        assert not done.returncode, done.stderr[:3000]
    return f"emulated:{path}".encode() + b"\0"
